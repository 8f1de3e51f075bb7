#include "data/prepare/prepare.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "data/formats/token_stream.h"
#include "data/prepare/packer.h"
#include "data/prepare/split_writer.h"
#include "data/prepare/text_reader.h"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;
constexpr uint64_t kSplitSeed = 0x76616c6964617465ULL;  // "validate"
constexpr std::array<const char*, 2> kSplits = {"train", "val"};

// Hashes every file's length and bytes.
class InputHash {
 public:
  void begin(const Document& document) {
    const int64_t size = document.size_bytes;
    stream_.update(std::as_bytes(std::span(&size, 1)));
  }
  void add(std::span<const std::byte> bytes) { stream_.update(bytes); }
  std::string text() const { return hex64(stream_.digest()); }

 private:
  Xxh3Stream stream_;
};

constexpr size_t kBatchBytes = size_t{8} << 20;  // of text that is tokenized at once
constexpr int64_t kPlaces = 1'000'000;
constexpr size_t kSurveyedRecords = 1000;  // whose keys are shown

// What is tokenized alone: a segment of a text, or a record. Or the end of a text.
struct Unit {
  std::string text;
  size_t document = 0;
  int64_t line = 0;  // of a record; 0: a segment
  bool ends_document = false;
  std::string before = {};  // what the text's segment before it ends with
  RecordKind kind = RecordKind::kLines;
  // What became of it.
  std::vector<uint32_t> ids = {};
  std::vector<uint8_t> in_loss = {};
  int64_t place = kPlaces;  // place_in_split
  bool held_out = false;
  bool is_learnt = true, is_empty = false;  // as Understanding has them
  Result<void> done = {};
};

// Carries one call of prepare from the input to the shards.
class Preparation {
 public:
  Preparation(FileSystem& file_system, const Tokenizer& tokenizer, const PrepareOptions& options,
              DatasetManifest& manifest, const std::vector<Document>& documents,
              std::optional<ChatTemplate> chat)
      : file_system_(file_system),
        tokenizer_(tokenizer),
        options_(options),
        manifest_(manifest),
        documents_(documents),
        chat_(std::move(chat)),
        answers_only_(options.records && options.records->has_mask()),
        writers_{writer(kSplits[0]), writer(kSplits[1])} {
    for (size_t split = 0; split < writers_.size() && packs(); ++split)
      packers_.emplace_back(
          options_.pack_seq_len, tokenizer_.end_of_document(),
          [this, split](const auto& tokens, const auto& in_loss, const auto& starts) {
            return writers_[split].append(tokens, in_loss, starts);
          });
  }

  Result<void> run() {
    for (size_t i = 0; i < documents_.size(); ++i) {
      hash_.begin(documents_[i]);
      LOCKSTEP_RETURN_IF_ERROR(options_.records ? add_records(i) : add_text(i));
    }
    LOCKSTEP_RETURN_IF_ERROR(flush());
    return finish();
  }
  const Understanding& understood() const { return understood_; }
  // Of all that was read; none: all of it has the same.
  std::optional<int64_t> least_place() const {
    return least_place_ < most_place_ ? std::optional(least_place_) : std::nullopt;
  }

 private:
  SplitWriter writer(const char* split) {
    return {file_system_,
            {options_.out, split, manifest_.dtype, options_.shard_tokens, has_mask(), packs()}};
  }
  bool packs() const { return options_.pack_seq_len > 0; }
  bool has_mask() const { return answers_only_ || packs(); }
  ByteSource::Observer observer() {
    return [this](std::span<const std::byte> bytes) {
      hash_.add(bytes);
      done_bytes_ += static_cast<int64_t>(bytes.size());
    };
  }

  Result<void> add_text(size_t document) {
    LOCKSTEP_TRY(SegmentReader reader,
                 SegmentReader::open(file_system_, documents_[document], observer()));
    std::string before, words;
    do {
      LOCKSTEP_TRY(const std::string_view segment, reader.next());
      words = segment;
      LOCKSTEP_RETURN_IF_ERROR(add({words, document, 0, words.empty(), before}));
      before = end_of_segment(words);
    } while (!words.empty());
    return {};
  }
  Result<void> add_records(size_t document) {
    LOCKSTEP_TRY(const auto reader,
                 RecordReader::open(file_system_, documents_[document], observer()));
    const bool is_table = options_.origin && options_.origin(documents_[document].path, 1);
    if (understood_.format.empty())
      understood_.format = is_table ? "rows of a table" : record_kind_words(reader->kind());
    while (true) {
      LOCKSTEP_TRY(const std::string_view record, reader->next());
      if (record.empty()) return {};
      const int64_t line = reader->number();
      LOCKSTEP_RETURN_IF_ERROR(
          add({std::string(record), document, line, false, "", reader->kind()}));
    }
  }
  Result<void> add(Unit unit) {
    batch_bytes_ += unit.text.size() + sizeof(Unit);
    batch_.push_back(std::move(unit));
    return batch_bytes_ < kBatchBytes ? Result<void>() : flush();
  }

  // Tokenizes the batch on all threads, then writes it in its order.
  Result<void> flush() {
    parallel_for(batch_.size(), options_.threads,
                 [&] { return [&](size_t i) { batch_[i].done = encode(batch_[i]); }; });
    for (const Unit& unit : batch_) {
      if (!unit.done.ok()) return unit.done.error().in(place_of(unit));
      understand(unit);
    }
    tell_once();
    for (const Unit& unit : batch_) {
      if (!unit.is_learnt) continue;
      least_place_ = std::min(least_place_, unit.place);
      most_place_ = std::max(most_place_, unit.place < kPlaces ? unit.place : 0);
      LOCKSTEP_RETURN_IF_ERROR(unit.line == 0 ? append_segment(unit) : append(unit));
    }
    batch_.clear();
    batch_bytes_ = 0;
    if (options_.on_progress) options_.on_progress(done_bytes_, manifest_.recipe.input_bytes);
    return {};
  }

  std::string place_of(const Unit& unit) const {
    const fs::path& path = documents_[unit.document].path;
    return unit.line == 0 ? path.string() : record_place(options_, path, unit.kind, unit.line);
  }
  void understand(const Unit& unit) {
    if (unit.line == 0) return;
    ++understood_.records;
    understood_.unlearnt += !unit.is_learnt;
    understood_.empty += unit.is_learnt && unit.is_empty;
    if (!unit.is_learnt) return;
    const auto tokens = static_cast<int64_t>(unit.ids.size());
    understood_.tokens += tokens;
    understood_.learnt_tokens += std::count(unit.in_loss.begin(), unit.in_loss.end(), uint8_t{1});
    if (understood_.shown.size() < kShownRecords)
      understood_.shown.push_back({place_of(unit), unit.ids, unit.in_loss});
    if (tokens <= understood_.longest_tokens) return;
    understood_.longest_tokens = tokens;
    understood_.longest_place = place_of(unit);
  }
  void tell_once() {
    if (std::exchange(told_, true) || !options_.records) return;
    for (size_t i = 0; i < std::min(batch_.size(), kSurveyedRecords); ++i)
      note_keys(batch_[i].text, *options_.records, understood_.keys);
    if (options_.on_understood) options_.on_understood(understood_);
  }

  Result<void> encode(Unit& unit) const {
    if (unit.line == 0) {
      LOCKSTEP_RETURN_IF_ERROR(encode_after(tokenizer_, unit.before, unit.text, unit.ids));
      if (!unit.text.empty()) place(unit, unit.text);
    } else {
      LOCKSTEP_RETURN_IF_ERROR(encode_record(unit));
    }
    for (const uint32_t id : unit.ids)
      LOCKSTEP_CHECK(id < tokenizer_.vocab_size(), tokenizer_.name(), " made token ", id);
    return {};
  }
  void place(Unit& unit, std::string_view words) const {
    unit.place = place_in_split(words);
    unit.held_out = unit.place < options_.val_millionths;
  }
  Result<void> encode_record(Unit& unit) const {
    LOCKSTEP_TRY(const Record record, parse_record(unit.text, *options_.records, chat_));
    unit.is_learnt = record.is_learnt;
    unit.is_empty = std::none_of(
        record.passages.begin(), record.passages.end(),
        [](const Passage& each) { return each.in_loss && !each.token && !each.words.empty(); });
    place(unit, record.text);
    LOCKSTEP_RETURN_IF_ERROR(
        encode_document(tokenizer_, record.passages, !answers_only_, unit.ids, unit.in_loss));
    // A template may have ended the document already. What ends a chat for good is no answer.
    if (unit.ids.empty() || unit.ids.back() != tokenizer_.end_of_document()) {
      unit.ids.push_back(tokenizer_.end_of_document());
      unit.in_loss.push_back(!chat_);
    }
    return {};
  }

  Result<void> append(const Unit& unit) {
    LOCKSTEP_RETURN_IF_ERROR(write(unit.held_out, unit.ids, unit.in_loss));
    return end_document(unit.held_out);
  }
  Result<void> write(bool held_out, std::span<const uint32_t> ids,
                     std::span<const uint8_t> in_loss) {
    return packs() ? packers_[held_out].append(ids, in_loss)
                   : writers_[held_out].append(ids, in_loss);
  }
  // All of them count.
  Result<void> write(bool held_out, std::span<const uint32_t> ids) {
    return write(held_out, ids, std::vector<uint8_t>(has_mask() ? ids.size() : 0, 1));
  }
  Result<void> end_document(bool held_out) {
    return packs() ? packers_[held_out].end_document() : Result<void>();
  }
  // The text of a split breaks off where the other split takes over, and where the document ends.
  Result<void> append_segment(const Unit& unit) {
    const auto now = unit.ends_document ? std::nullopt : std::optional(unit.held_out);
    if (now != open_text_) {
      const uint32_t end = tokenizer_.end_of_document();
      if (open_text_) {
        LOCKSTEP_RETURN_IF_ERROR(write(*open_text_, std::span(&end, 1)));
        LOCKSTEP_RETURN_IF_ERROR(end_document(*open_text_));
      }
      if (now) LOCKSTEP_RETURN_IF_ERROR(write(*now, tokenizer_.begin_of_document()));
      open_text_ = now;
    }
    return now ? write(*now, unit.ids) : Result<void>();
  }

  // Errors: kConfig, no record has anything to learn.
  Result<void> check_anything_learnt() const {
    if (!options_.records || understood_.empty + understood_.unlearnt < understood_.records)
      return {};
    return Error{
        Code::kConfig,
        text("there is nothing to learn in ", documents_[0].path.string(),
             documents_.size() > 1 ? " and the other files: " : ": ", understood_.empty, " of ",
             counted(understood_.records, "record"), " are empty where they should be learnt, and ",
             understood_.unlearnt, " say that no answer is to be learnt")};
  }

  Result<void> finish() {
    LOCKSTEP_RETURN_IF_ERROR(check_anything_learnt());
    for (Packer& packer : packers_) {
      LOCKSTEP_RETURN_IF_ERROR(packer.seal());
      manifest_.filling_tokens += packer.filling_tokens();
    }
    for (SplitWriter& writer : writers_) {
      LOCKSTEP_RETURN_IF_ERROR(writer.seal());
      manifest_.shards.insert(manifest_.shards.end(), writer.shards().begin(),
                              writer.shards().end());
    }
    manifest_.recipe.input_xxh3 = hash_.text();
    manifest_.format_version = kManifestVersion;
    if (manifest_.tokens("train") == 0)
      return Error{
          Code::kConfig,
          text("all of the input (", manifest_.recipe.input_bytes,
               " bytes) fell into the validation split: add text or lower --val-fraction")};
    return {};
  }

  FileSystem& file_system_;
  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  DatasetManifest& manifest_;
  const std::vector<Document>& documents_;
  const std::optional<ChatTemplate> chat_;
  const bool answers_only_;
  std::array<SplitWriter, 2> writers_;  // by in_validation_split
  std::vector<Packer> packers_;         // the same, where documents are packed
  std::optional<bool> open_text_;       // held out or not: where a text's last segment went
  InputHash hash_;
  std::vector<Unit> batch_;
  size_t batch_bytes_ = 0;
  int64_t done_bytes_ = 0;  // of the files
  Understanding understood_;
  bool told_ = false;
  int64_t least_place_ = kPlaces, most_place_ = 0;
};

Result<std::string> hash_of_input(FileSystem& file_system, const std::vector<Document>& documents) {
  InputHash hash;
  for (const Document& document : documents) {
    hash.begin(document);
    LOCKSTEP_TRY(const auto source,
                 ByteSource::open(file_system, document,
                                  [&](std::span<const std::byte> bytes) { hash.add(bytes); }));
    std::string read;
    do {
      read.clear();
      LOCKSTEP_RETURN_IF_ERROR(source->append_to(read));
    } while (!read.empty());
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
  compare("records", there.records.empty() ? "none" : there.records,
          wanted.records.empty() ? "none" : wanted.records);
  compare("documents", there.documents, wanted.documents);
  compare("input bytes", there.input_bytes, wanted.input_bytes);
  compare("validation fraction", fixed(static_cast<double>(there.val_millionths) * 1e-6, 6),
          fixed(static_cast<double>(wanted.val_millionths) * 1e-6, 6));
  compare("segment bytes", there.segment_bytes, wanted.segment_bytes);
  compare("packed for", there.packed_seq_len, wanted.packed_seq_len);
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
  constexpr const char* kAdvice = "; --force prepares this folder again";
  if (!there.ok()) return Error{there.error().code, there.error().message + kAdvice};
  wanted.input_xxh3 = there->recipe.input_xxh3;
  std::string difference = differences(there->recipe, wanted);
  if (difference.empty()) {  // only now is it worth reading all of the input
    LOCKSTEP_TRY(wanted.input_xxh3, hash_of_input(file_system, documents));
    difference = differences(there->recipe, wanted);
  }
  if (!difference.empty())
    return Error{Code::kConfig,
                 text(out.string(), " exists and was prepared differently: ", difference,
                      ". Give another --out, or replace it with --force")};
  for (const char* split : {"train", "val"})
    if (const auto whole = check_shards(file_system, out, *there, split); !whole)
      return Error{whole.error().code, whole.error().message + kAdvice};
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
    if ((name.ends_with(kShardSuffix) || name.ends_with(kMaskSuffix) ||
         name.ends_with(kStartsSuffix)) &&
        (name.starts_with("train_") || name.starts_with("val_")))
      LOCKSTEP_RETURN_IF_ERROR(file_system.remove(out / name));
  return remove_tree(file_system, out / kTokenizerFolder);
}

Result<void> write_tokenizer(FileSystem& file_system, const PrepareOptions& options) {
  if (options.tokenizer_files.empty()) return {};
  const fs::path folder = options.out / kTokenizerFolder;
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(folder));
  for (const auto& [name, contents] : options.tokenizer_files)
    LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, folder / name, contents));
  return {};
}

// What looks like records is not text.
Result<void> check_kinds(FileSystem& file_system, const std::vector<Document>& documents,
                         const PrepareOptions& options) {
  if (options.records || options.as_text) return {};
  for (const Document& document : documents) {
    LOCKSTEP_TRY(const auto found, find_records(file_system, document));
    if (!found) continue;
    const std::string flags = flags_for(found->first);
    return Error{Code::kConfig,
                 text(document.path.string(), ": ", record_kind_words(found->kind),
                      "; say which field is the text: --text-field NAME, or --prompt-field and "
                      "--response-field, or --chat-template",
                      flags.empty() ? "" : "; for the first record: " + flags,
                      "; --as-text learns the file as it is, with its punctuation")};
  }
  return {};
}

Result<void> check_options(const PrepareOptions& options) {
  if (options.inputs.empty())
    return Error{Code::kConfig, "no input is given; name a text file or a folder"};
  if (options.out.empty()) return Error{Code::kConfig, "no output folder is given; use --out DIR"};
  if (options.val_millionths < 0 || options.val_millionths > kMaxValMillionths)
    return Error{Code::kConfig, text("validation fraction ",
                                     fixed(static_cast<double>(options.val_millionths) * 1e-6, 6),
                                     " is not between 0 and 0.5")};
  if (options.shard_tokens < 1 || options.shard_tokens > kMaxShardTokens)
    return Error{Code::kConfig, text("shard tokens ", options.shard_tokens,
                                     " is not between 1 and ", kMaxShardTokens)};
  if (options.pack_seq_len < 0 || options.pack_seq_len > Packer::kWindowTokens)
    return Error{Code::kConfig, text("cannot pack into samples of ", options.pack_seq_len,
                                     " tokens; the limit is ", Packer::kWindowTokens)};
  // By the names alone; list_documents refuses the shards that other spellings let through.
  const fs::path out = (options.out / "").lexically_normal();
  for (const fs::path& input : options.inputs) {
    const fs::path folder = (input / "").lexically_normal();
    const auto end = std::prev(folder.end());  // the empty name after the last slash
    const bool here = folder == "./" && out.is_relative() && *out.begin() != "..";
    if (here || std::mismatch(folder.begin(), end, out.begin(), out.end()).first == end)
      return Error{Code::kConfig,
                   text(options.out.string(), " lies inside the input ", input.string(),
                        "; give a folder outside it, because its shards would become input")};
  }
  return {};
}

}  // namespace

std::string record_place(const PrepareOptions& options, const fs::path& path, RecordKind kind,
                         int64_t number) {
  if (options.origin)
    if (const auto origin = options.origin(path, number)) return *origin;
  return text(path.string(), ": ", record_unit(kind), " ", number);
}

int64_t place_in_split(std::string_view words) {
  return static_cast<int64_t>(xxh3_64(as_bytes(words), kSplitSeed) % kPlaces);
}

bool in_validation_split(std::string_view words, int64_t val_millionths) {
  return place_in_split(words) < val_millionths;
}

Result<PrepareReport> prepare(FileSystem& file_system, const Tokenizer& tokenizer,
                              const PrepareOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(check_options(options));
  LOCKSTEP_TRY(const std::vector<Document> documents, list_documents(file_system, options.inputs));
  LOCKSTEP_RETURN_IF_ERROR(check_kinds(file_system, documents, options));
  std::optional<ChatTemplate> chat;
  if (options.records && !options.records->chat_template.empty()) {
    LOCKSTEP_TRY(chat, ChatTemplate::create(options.records->chat_template, tokenizer,
                                            options.records->jinja));
  }

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
  if (options.records) recipe.records = options.records->description();
  recipe.val_millionths = options.val_millionths;
  recipe.segment_bytes = kSegmentBytes;
  recipe.shard_tokens = options.shard_tokens;
  recipe.packed_seq_len = options.pack_seq_len;

  if (!options.force) {
    LOCKSTEP_TRY(auto existing, find_existing(file_system, options.out, documents, recipe));
    if (existing) return PrepareReport{*std::move(existing), true};
  }
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(options.out));
  LOCKSTEP_RETURN_IF_ERROR(clear_folder(file_system, options.out));

  Preparation preparation(file_system, tokenizer, options, manifest, documents, std::move(chat));
  LOCKSTEP_RETURN_IF_ERROR(preparation.run());
  report.least_place = preparation.least_place();
  report.understood = preparation.understood();
  LOCKSTEP_RETURN_IF_ERROR(write_tokenizer(file_system, options));
  LOCKSTEP_RETURN_IF_ERROR(file_system.sync_directory(options.out));
  LOCKSTEP_RETURN_IF_ERROR(
      publish_file(file_system, options.out / kManifestName, seal_manifest(manifest)));
  return report;
}

}  // namespace lockstep::data
