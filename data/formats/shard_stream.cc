#include "data/formats/token_shard.h"
#include "data/formats/token_stream.h"

namespace lockstep::data {
namespace {

using Readers = std::vector<std::unique_ptr<ShardReader>>;

class ShardStream final : public TokenStream {
 public:
  ShardStream(Readers shards, Readers masks, Readers starts)
      : shards_(std::move(shards)), masks_(std::move(masks)), starts_(std::move(starts)) {
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
  Result<void> read_bits(const Readers& bits, int64_t first, std::span<int64_t> out) const {
    return parts_.for_each(
        first, out, [&](size_t shard, int64_t begin, std::span<int64_t> piece) -> Result<void> {
          const auto count = static_cast<int64_t>(piece.size());
          const int64_t first_word = begin / kMaskWordBits;
          std::vector<int64_t> words(static_cast<size_t>(mask_words(begin + count) - first_word));
          LOCKSTEP_RETURN_IF_ERROR(bits[shard]->read(first_word, words));
          for (int64_t i = 0; i < count; ++i) {
            const int64_t bit = begin + i - first_word * kMaskWordBits;
            piece[static_cast<size_t>(i)] =
                words[static_cast<size_t>(bit / kMaskWordBits)] >> (bit % kMaskWordBits) & 1;
          }
          return {};
        });
  }

  const Readers shards_;
  const Readers masks_, starts_;  // of each shard, or none
  PartTable parts_;
};

// Opens the file of bits beside a shard, if there is one.
Result<void> open_bits(FileSystem& file_system, const std::filesystem::path& folder,
                       const ShardInfo& shard, const std::optional<BitsInfo>& bits,
                       Readers& readers) {
  if (!bits) return {};
  ShardInfo info;
  info.file = bits->file;
  info.tokens = mask_words(shard.tokens);
  info.block_xxh3 = bits->block_xxh3;
  LOCKSTEP_TRY(auto reader,
               ShardReader::open(file_system, folder, info, "u16", int64_t{1} << kMaskWordBits));
  readers.push_back(std::move(reader));
  return {};
}

}  // namespace

Result<std::unique_ptr<TokenStream>> open_shards(FileSystem& file_system,
                                                 const std::filesystem::path& folder,
                                                 const DatasetManifest& manifest,
                                                 const std::string& split) {
  Readers shards, masks, starts;
  for (const ShardInfo& info : manifest.shards) {
    if (info.split != split) continue;
    LOCKSTEP_TRY(auto shard,
                 ShardReader::open(file_system, folder, info, manifest.dtype, manifest.vocab_size));
    shards.push_back(std::move(shard));
    LOCKSTEP_RETURN_IF_ERROR(open_bits(file_system, folder, info, info.mask, masks));
    LOCKSTEP_RETURN_IF_ERROR(open_bits(file_system, folder, info, info.starts, starts));
  }
  return std::unique_ptr<TokenStream>(
      std::make_unique<ShardStream>(std::move(shards), std::move(masks), std::move(starts)));
}

}  // namespace lockstep::data
