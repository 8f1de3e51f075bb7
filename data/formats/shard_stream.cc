#include <map>

#include "base/parallel_for.h"
#include "data/formats/token_shard.h"
#include "data/formats/token_stream.h"

namespace lockstep::data {
namespace {

constexpr size_t kMaxOpenFiles = 512;  // of a stream's shards, of its masks, of its starts
constexpr int kCheckThreads = 16;      // they wait for the disk

// The files of a stream, each opened when it is read; of those that are open the one that was read
// longest ago makes room for another one. Thread-safe.
class ShardFiles {
 public:
  ShardFiles(std::shared_ptr<FileSystem> file_system, std::filesystem::path folder)
      : file_system_(std::move(file_system)), folder_(std::move(folder)) {}

  void add(ShardInfo info, std::string dtype, int64_t vocab_size) {
    files_.push_back({std::move(info), std::move(dtype), vocab_size});
  }
  bool empty() const { return files_.empty(); }

  // Errors: ShardReader::open's and read's.
  Result<void> read(size_t index, int64_t first, std::span<int64_t> out) {
    LOCKSTEP_TRY(const auto reader, opened(index));
    return reader->read(first, out);
  }

 private:
  struct Each {
    ShardInfo info;
    std::string dtype;
    int64_t vocab_size;
  };
  struct Opened {
    std::shared_ptr<const ShardReader> reader;
    int64_t last_use;
  };

  Result<std::shared_ptr<const ShardReader>> opened(size_t index) {
    if (auto reader = in_use(index)) return reader;
    const Each& file = files_[index];
    LOCKSTEP_TRY(std::shared_ptr<const ShardReader> reader,
                 ShardReader::open(*file_system_, folder_, file.info, file.dtype, file.vocab_size));
    const std::lock_guard lock(mutex_);
    if (open_.size() >= kMaxOpenFiles) {
      const auto oldest = std::min_element(
          open_.begin(), open_.end(),
          [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
      open_.erase(oldest);
    }
    open_[index] = {reader, ++uses_};
    return reader;
  }

  std::shared_ptr<const ShardReader> in_use(size_t index) {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(index);
    if (found == open_.end()) return nullptr;
    found->second.last_use = ++uses_;
    return found->second.reader;
  }

  const std::shared_ptr<FileSystem> file_system_;
  const std::filesystem::path folder_;
  std::vector<Each> files_;  // all added before the first read
  std::mutex mutex_;
  std::map<size_t, Opened> open_;  // guarded by mutex_; at most kMaxOpenFiles
  int64_t uses_ = 0;               // guarded by mutex_
};

// A file of bits beside a shard.
ShardInfo bits_file(const ShardInfo& shard, const BitsInfo& bits) {
  ShardInfo file;
  file.file = bits.file;
  file.tokens = mask_words(shard.tokens);
  file.checksums = bits.checksums;
  return file;
}
constexpr const char* kBitsType = "u16";
constexpr int64_t kBitsVocabulary = int64_t{1} << kMaskWordBits;

class ShardStream final : public TokenStream {
 public:
  ShardStream(const std::shared_ptr<FileSystem>& file_system, const std::filesystem::path& folder,
              const DatasetManifest& manifest, const std::string& split)
      : shards_(file_system, folder), masks_(file_system, folder), starts_(file_system, folder) {
    for (const ShardInfo& shard : manifest.shards) {
      if (shard.split != split) continue;
      shards_.add(shard, manifest.dtype, manifest.vocab_size);
      if (shard.mask) masks_.add(bits_file(shard, *shard.mask), kBitsType, kBitsVocabulary);
      if (shard.starts) starts_.add(bits_file(shard, *shard.starts), kBitsType, kBitsVocabulary);
      parts_.add(shard.tokens);
    }
  }

  int64_t tokens() const override { return parts_.tokens(); }

  Result<void> read(int64_t first, std::span<int64_t> out) const override {
    return parts_.for_each(first, out, [&](size_t shard, int64_t begin, std::span<int64_t> piece) {
      return shards_.read(shard, begin, piece);
    });
  }

  Result<void> mask(int64_t first, std::span<int64_t> labels) const override {
    if (masks_.empty()) return {};
    std::vector<int64_t> counts(labels.size());
    LOCKSTEP_RETURN_IF_ERROR(read_bits(masks_, first, counts));
    for (size_t i = 0; i < labels.size(); ++i)
      if (counts[i] == 0) labels[i] = kNotCounted;
    return {};
  }

  Result<void> document_starts(int64_t first, std::span<int64_t> out) const override {
    return starts_.empty() ? TokenStream::document_starts(first, out)
                           : read_bits(starts_, first, out);
  }

 private:
  // out[i] = the bit of token first + i.
  Result<void> read_bits(ShardFiles& bits, int64_t first, std::span<int64_t> out) const {
    return parts_.for_each(
        first, out, [&](size_t shard, int64_t begin, std::span<int64_t> piece) -> Result<void> {
          const auto count = static_cast<int64_t>(piece.size());
          const int64_t first_word = begin / kMaskWordBits;
          std::vector<int64_t> words(static_cast<size_t>(mask_words(begin + count) - first_word));
          LOCKSTEP_RETURN_IF_ERROR(bits.read(shard, first_word, words));
          for (int64_t i = 0; i < count; ++i) {
            const int64_t bit = begin + i - first_word * kMaskWordBits;
            piece[static_cast<size_t>(i)] =
                words[static_cast<size_t>(bit / kMaskWordBits)] >> (bit % kMaskWordBits) & 1;
          }
          return {};
        });
  }

  mutable ShardFiles shards_;
  mutable ShardFiles masks_, starts_;  // of each shard, or none
  PartTable parts_;
};

}  // namespace

std::unique_ptr<TokenStream> open_shards(std::shared_ptr<FileSystem> file_system,
                                         const std::filesystem::path& folder,
                                         const DatasetManifest& manifest,
                                         const std::string& split) {
  return std::make_unique<ShardStream>(std::move(file_system), folder, manifest, split);
}

Result<void> check_shards(FileSystem& file_system, const std::filesystem::path& folder,
                          const DatasetManifest& manifest, const std::string& split) {
  const auto check = [&](const ShardInfo& shard) -> Result<void> {
    if (shard.split != split) return {};
    LOCKSTEP_RETURN_IF_ERROR(
        ShardReader::open(file_system, folder, shard, manifest.dtype, manifest.vocab_size));
    for (const auto& bits : {shard.mask, shard.starts})
      if (bits)
        LOCKSTEP_RETURN_IF_ERROR(ShardReader::open(file_system, folder, bits_file(shard, *bits),
                                                   kBitsType, kBitsVocabulary));
    return {};
  };
  std::vector<Result<void>> checked(manifest.shards.size());
  parallel_for(checked.size(), kCheckThreads,
               [&] { return [&](size_t i) { checked[i] = check(manifest.shards[i]); }; });
  for (Result<void>& each : checked) LOCKSTEP_RETURN_IF_ERROR(std::move(each));
  return {};
}

}  // namespace lockstep::data
