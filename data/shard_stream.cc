#include "data/token_shard.h"
#include "data/token_stream.h"

namespace lockstep::data {
namespace {

class ShardStream final : public TokenStream {
 public:
  ShardStream(std::vector<std::unique_ptr<ShardReader>> shards,
              std::vector<std::unique_ptr<ShardReader>> masks)
      : shards_(std::move(shards)), masks_(std::move(masks)) {
    for (const auto& shard : shards_) parts_.add(shard->tokens());
  }

  int64_t tokens() const override { return parts_.tokens(); }

  Result<void> read(int64_t first, std::span<int64_t> out) const override {
    return parts_.for_each(first, out, [&](size_t shard, int64_t begin, std::span<int64_t> piece) {
      return shards_[shard]->read(begin, piece);
    });
  }

  Result<void> mask(int64_t first, std::span<int64_t> labels) const override {
    if (masks_.empty()) return {};
    return parts_.for_each(first, labels,
                           [&](size_t shard, int64_t begin, std::span<int64_t> piece) {
                             return mask_in_shard(*masks_[shard], begin, piece);
                           });
  }

 private:
  static Result<void> mask_in_shard(const ShardReader& mask, int64_t begin,
                                    std::span<int64_t> labels) {
    const auto count = static_cast<int64_t>(labels.size());
    const int64_t first_word = begin / kMaskWordBits;
    std::vector<int64_t> words(static_cast<size_t>(mask_words(begin + count) - first_word));
    LOCKSTEP_RETURN_IF_ERROR(mask.read(first_word, words));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t bit = begin + i - first_word * kMaskWordBits;
      if (!(words[static_cast<size_t>(bit / kMaskWordBits)] >> (bit % kMaskWordBits) & 1))
        labels[static_cast<size_t>(i)] = kNotCounted;
    }
    return {};
  }

  const std::vector<std::unique_ptr<ShardReader>> shards_;
  const std::vector<std::unique_ptr<ShardReader>> masks_;  // of each shard, or none
  PartTable parts_;
};

}  // namespace

Result<std::unique_ptr<TokenStream>> open_shards(FileSystem& file_system,
                                                 const std::filesystem::path& folder,
                                                 const DatasetManifest& manifest,
                                                 const std::string& split) {
  std::vector<std::unique_ptr<ShardReader>> shards, masks;
  for (const ShardInfo& info : manifest.shards) {
    if (info.split != split) continue;
    LOCKSTEP_TRY(auto shard, ShardReader::open(file_system, folder, info, manifest.dtype,
                                               manifest.vocab_size));
    shards.push_back(std::move(shard));
    if (!info.mask) continue;
    const ShardInfo mask{info.mask->file, mask_words(info.tokens), info.split,
                         info.mask->block_xxh3, std::nullopt};
    LOCKSTEP_TRY(auto words, ShardReader::open(file_system, folder, mask, "u16",
                                               int64_t{1} << kMaskWordBits));
    masks.push_back(std::move(words));
  }
  return std::unique_ptr<TokenStream>(
      std::make_unique<ShardStream>(std::move(shards), std::move(masks)));
}

}  // namespace lockstep::data
