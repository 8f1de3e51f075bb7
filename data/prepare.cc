#include "data/prepare.h"

#include <algorithm>
#include <array>
#include <memory>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/text_reader.h"
#include "data/token_shard.h"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;
constexpr uint64_t kSplitSeed = 0x76616c6964617465ULL;  // "validate"
constexpr std::array<const char*, 2> kSplits = {"train", "val"};

// Hashes every document's length and bytes.
class InputHash {
 public:
  void begin(const Document& document) {
    const int64_t size = document.size_bytes;
    stream_.update(std::as_bytes(std::span(&size, 1)));
  }
  void add(std::string_view bytes) { stream_.update(as_bytes(bytes)); }
  std::string text() const { return hex64(stream_.digest()); }

 private:
  Xxh3Stream stream_;
};

// One split's tokens, cut into shards of exactly `shard_tokens`, the last one shorter.
class SplitWriter {
 public:
  SplitWriter(FileSystem& file_system, const fs::path& folder, std::string split, std::string dtype,
              int64_t shard_tokens)
      : file_system_(file_system),
        folder_(folder),
        split_(std::move(split)),
        dtype_(std::move(dtype)),
        shard_tokens_(shard_tokens) {}

  Result<void> append(std::span<const uint32_t> tokens) {
    while (!tokens.empty()) {
      if (!shard_) {
        std::string number = text(shards_.size());
        number.insert(0, number.size() < 5 ? 5 - number.size() : 0, '0');
        LOCKSTEP_TRY(shard_, ShardWriter::create(file_system_, folder_,
                                                 text(split_, "_", number, kShardSuffix), dtype_));
      }
      const auto room = static_cast<size_t>(shard_tokens_ - shard_->tokens());
      const auto part = tokens.first(std::min(room, tokens.size()));
      LOCKSTEP_RETURN_IF_ERROR(shard_->append(part));
      tokens = tokens.subspan(part.size());
      if (shard_->tokens() == shard_tokens_) LOCKSTEP_RETURN_IF_ERROR(seal());
    }
    return {};
  }
  Result<void> seal() {
    if (!shard_) return {};
    LOCKSTEP_TRY(ShardInfo info, shard_->seal());
    info.split = split_;
    shards_.push_back(std::move(info));
    shard_.reset();
    return {};
  }
  const std::vector<ShardInfo>& shards() const { return shards_; }

 private:
  FileSystem& file_system_;
  const fs::path folder_;
  const std::string split_, dtype_;
  const int64_t shard_tokens_;
  std::unique_ptr<ShardWriter> shard_;
  std::vector<ShardInfo> shards_;
};

// Carries one call of prepare from the input to the shards.
class Preparation {
 public:
  Preparation(FileSystem& file_system, const Tokenizer& tokenizer, const PrepareOptions& options,
              DatasetManifest& manifest)
      : file_system_(file_system),
        tokenizer_(tokenizer),
        options_(options),
        manifest_(manifest),
        writers_{
            SplitWriter(file_system, options.out, kSplits[0], manifest.dtype, options.shard_tokens),
            SplitWriter(file_system, options.out, kSplits[1], manifest.dtype,
                        options.shard_tokens)} {}

  Result<void> add(const Document& document) {
    LOCKSTEP_TRY(SegmentReader reader, SegmentReader::open(file_system_, document));
    hash_.begin(document);
    SplitWriter* previous = nullptr;
    while (true) {
      LOCKSTEP_TRY(const std::string_view segment, reader.next());
      SplitWriter* writer = nullptr;
      if (!segment.empty())
        writer = &writers_[in_validation_split(segment, options_.val_millionths)];
      // The text of a split breaks off where the other split takes over, and where the document
      // ends.
      if (previous && writer != previous) {
        const uint32_t end = tokenizer_.end_of_document();
        LOCKSTEP_RETURN_IF_ERROR(previous->append(std::span(&end, 1)));
      }
      if (!writer) return {};
      ids_.clear();
      LOCKSTEP_RETURN_IF_ERROR(tokenizer_.encode(segment, ids_));
      for (uint32_t id : ids_)
        LOCKSTEP_CHECK(id < tokenizer_.vocab_size(), tokenizer_.name(), " made token ", id);
      LOCKSTEP_RETURN_IF_ERROR(writer->append(ids_));
      hash_.add(segment);
      done_bytes_ += static_cast<int64_t>(segment.size());
      if (options_.on_progress) options_.on_progress(done_bytes_, manifest_.recipe.input_bytes);
      previous = writer;
    }
  }

  Result<void> finish() {
    for (SplitWriter& writer : writers_) {
      LOCKSTEP_RETURN_IF_ERROR(writer.seal());
      manifest_.shards.insert(manifest_.shards.end(), writer.shards().begin(),
                              writer.shards().end());
    }
    manifest_.recipe.input_xxh3 = hash_.text();
    if (manifest_.tokens("train") == 0)
      return Error{
          Code::kConfig,
          text("all of the input (", manifest_.recipe.input_bytes,
               " bytes) fell into the validation split: add text or lower --val-fraction")};
    return {};
  }

 private:
  FileSystem& file_system_;
  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  DatasetManifest& manifest_;
  std::array<SplitWriter, 2> writers_;  // by in_validation_split
  InputHash hash_;
  std::vector<uint32_t> ids_;
  int64_t done_bytes_ = 0;
};

Result<std::string> hash_of_input(FileSystem& file_system, const std::vector<Document>& documents) {
  InputHash hash;
  for (const Document& document : documents) {
    LOCKSTEP_TRY(SegmentReader reader, SegmentReader::open(file_system, document));
    hash.begin(document);
    while (true) {
      LOCKSTEP_TRY(const std::string_view segment, reader.next());
      if (segment.empty()) break;
      hash.add(segment);
    }
  }
  return hash.text();
}

// "documents 3, not 2; …": how the folder's recipe differs from the wanted one.
std::string differences(const Recipe& there, const Recipe& wanted) {
  std::string out;
  const auto compare = [&](const char* what, const auto& a, const auto& b) {
    if (a != b) out += text(out.empty() ? "" : "; ", what, " ", a, ", not ", b);
  };
  compare("tokenizer", there.tokenizer, wanted.tokenizer);
  compare("tokenizer hash", there.tokenizer_hash, wanted.tokenizer_hash);
  compare("documents", there.documents, wanted.documents);
  compare("input bytes", there.input_bytes, wanted.input_bytes);
  compare("validation fraction", fixed(static_cast<double>(there.val_millionths) * 1e-6, 6),
          fixed(static_cast<double>(wanted.val_millionths) * 1e-6, 6));
  compare("segment bytes", there.segment_bytes, wanted.segment_bytes);
  compare("shard tokens", there.shard_tokens, wanted.shard_tokens);
  if (out.empty()) compare("input XXH3", there.input_xxh3, wanted.input_xxh3);
  return out;
}

// Nothing: no complete folder there. Else its manifest, when `wanted` made it and it is whole.
Result<std::optional<DatasetManifest>> find_existing(FileSystem& file_system, const fs::path& out,
                                                     const std::vector<Document>& documents,
                                                     Recipe wanted) {
  auto there = read_manifest(file_system, out);
  if (!there.ok() && there.error().code == Code::kNotFound) return std::optional<DatasetManifest>();
  constexpr const char* kAdvice = " (--force prepares this folder again)";
  if (!there.ok()) return Error{there.error().code, there.error().message + kAdvice};
  wanted.input_xxh3 = there->recipe.input_xxh3;
  std::string difference = differences(there->recipe, wanted);
  if (difference.empty()) {  // only now is it worth reading all of the input
    LOCKSTEP_TRY(wanted.input_xxh3, hash_of_input(file_system, documents));
    difference = differences(there->recipe, wanted);
  }
  if (!difference.empty())
    return Error{Code::kConfig,
                 text(out.string(), " was prepared from something else: ", difference,
                      ". Choose another --out, or replace it with --force")};
  for (const ShardInfo& shard : there->shards) {
    const auto reader = ShardReader::open(file_system, out, shard, there->dtype, there->vocab_size);
    if (!reader.ok()) return Error{reader.error().code, reader.error().message + kAdvice};
  }
  return std::optional<DatasetManifest>(std::move(there).value());
}

// Unpublishes first, durably: shards must not vanish under a manifest that still names them.
Result<void> clear_folder(FileSystem& file_system, const fs::path& out) {
  if (file_system.exists(out / kManifestName)) {
    LOCKSTEP_RETURN_IF_ERROR(file_system.remove(out / kManifestName));
    LOCKSTEP_RETURN_IF_ERROR(file_system.sync_directory(out));
  }
  LOCKSTEP_TRY(const std::vector<std::string> names, file_system.list(out));
  for (const std::string& name : names)
    if (name.ends_with(kShardSuffix) && (name.starts_with("train_") || name.starts_with("val_")))
      LOCKSTEP_RETURN_IF_ERROR(file_system.remove(out / name));
  return {};
}

Result<void> check_options(const PrepareOptions& options) {
  if (options.inputs.empty()) return Error{Code::kConfig, "no input: name a text file or a folder"};
  if (options.out.empty()) return Error{Code::kConfig, "no output folder"};
  if (options.val_millionths < 0 || options.val_millionths > 500'000)
    return Error{Code::kConfig, text("validation fraction ",
                                     fixed(static_cast<double>(options.val_millionths) * 1e-6, 6),
                                     " is not between 0 and 0.5")};
  if (options.shard_tokens < 1 || options.shard_tokens > kMaxShardTokens)
    return Error{Code::kConfig, text("shard tokens ", options.shard_tokens,
                                     " is not between 1 and ", kMaxShardTokens)};
  // By the names alone; list_documents refuses the shards that other spellings let through.
  const fs::path out = (options.out / "").lexically_normal();
  for (const fs::path& input : options.inputs) {
    const fs::path folder = (input / "").lexically_normal();
    const auto end = std::prev(folder.end());  // the empty name after the last slash
    const bool here = folder == "./" && out.is_relative() && *out.begin() != "..";
    if (here || std::mismatch(folder.begin(), end, out.begin(), out.end()).first == end)
      return Error{Code::kConfig, text(options.out.string(), " lies inside the input ",
                                       input.string(), ": its shards would become input")};
  }
  return {};
}

}  // namespace

bool in_validation_split(std::string_view segment, int64_t val_millionths) {
  const uint64_t hash = xxh3_64(as_bytes(segment), kSplitSeed);
  return static_cast<int64_t>(hash % 1'000'000) < val_millionths;
}

Result<PrepareReport> prepare(FileSystem& file_system, const Tokenizer& tokenizer,
                              const PrepareOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(check_options(options));
  LOCKSTEP_TRY(const std::vector<Document> documents, list_documents(file_system, options.inputs));

  PrepareReport report;
  DatasetManifest& manifest = report.manifest;
  manifest.vocab_size = tokenizer.vocab_size();
  manifest.dtype = manifest.vocab_size <= 65536 ? "u16" : "u32";
  manifest.end_of_document = tokenizer.end_of_document();
  manifest.tokenizer = tokenizer.name();
  manifest.tokenizer_hash = tokenizer.hash();
  Recipe& recipe = manifest.recipe;
  recipe.tokenizer = manifest.tokenizer;
  recipe.tokenizer_hash = manifest.tokenizer_hash;
  recipe.documents = static_cast<int64_t>(documents.size());
  for (const Document& document : documents) recipe.input_bytes += document.size_bytes;
  recipe.val_millionths = options.val_millionths;
  recipe.segment_bytes = kSegmentBytes;
  recipe.shard_tokens = options.shard_tokens;

  if (!options.force) {
    LOCKSTEP_TRY(auto existing, find_existing(file_system, options.out, documents, recipe));
    if (existing) return PrepareReport{*std::move(existing), true};
  }
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(options.out));
  LOCKSTEP_RETURN_IF_ERROR(clear_folder(file_system, options.out));

  Preparation preparation(file_system, tokenizer, options, manifest);
  for (const Document& document : documents) LOCKSTEP_RETURN_IF_ERROR(preparation.add(document));
  LOCKSTEP_RETURN_IF_ERROR(preparation.finish());
  LOCKSTEP_RETURN_IF_ERROR(file_system.sync_directory(options.out));
  LOCKSTEP_RETURN_IF_ERROR(
      publish_file(file_system, options.out / kManifestName, seal_manifest(manifest)));
  return report;
}

}  // namespace lockstep::data
