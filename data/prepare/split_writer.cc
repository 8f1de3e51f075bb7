#include "data/prepare/split_writer.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::data {

Result<void> SplitWriter::open_shard() {
  const auto number = static_cast<int64_t>(shards_.size());
  const std::string stem = text(options_.split, "_", zero_padded(number, 5));
  LOCKSTEP_TRY(shard_, ShardWriter::create(file_system_, options_.folder, text(stem, kShardSuffix),
                                           options_.dtype));
  const auto open_bits = [&](bool wanted, std::string_view suffix,
                             std::optional<Bits>& bits) -> Result<void> {
    if (!wanted) return {};
    LOCKSTEP_TRY(auto file,
                 ShardWriter::create(file_system_, options_.folder, text(stem, suffix), "u16"));
    bits = Bits{std::move(file)};
    return {};
  };
  LOCKSTEP_RETURN_IF_ERROR(open_bits(options_.has_mask, kMaskSuffix, mask_));
  return open_bits(options_.has_starts, kStartsSuffix, starts_);
}

Result<void> SplitWriter::Bits::append(std::span<const uint8_t> bits) {
  std::vector<uint32_t> words;
  for (const uint8_t bit : bits) {
    word |= uint32_t{bit} << used;
    if (++used < kMaskWordBits) continue;
    words.push_back(word);
    word = 0;
    used = 0;
  }
  return file->append(words);
}

Result<BitsInfo> SplitWriter::Bits::seal() {
  if (used > 0) LOCKSTEP_RETURN_IF_ERROR(file->append(std::span(&word, 1)));
  LOCKSTEP_TRY(const ShardInfo info, file->seal());
  return BitsInfo{info.file, info.checksums};
}

Result<void> SplitWriter::append(std::span<const uint32_t> tokens, std::span<const uint8_t> in_loss,
                                 std::span<const uint8_t> starts) {
  while (!tokens.empty()) {
    if (!shard_) LOCKSTEP_RETURN_IF_ERROR(open_shard());
    const auto room = static_cast<size_t>(options_.shard_tokens - shard_->tokens());
    const size_t count = std::min(room, tokens.size());
    LOCKSTEP_RETURN_IF_ERROR(shard_->append(tokens.first(count)));
    tokens = tokens.subspan(count);
    if (mask_) {
      LOCKSTEP_RETURN_IF_ERROR(mask_->append(in_loss.first(count)));
      in_loss = in_loss.subspan(count);
    }
    if (starts_) {
      LOCKSTEP_RETURN_IF_ERROR(starts_->append(starts.first(count)));
      starts = starts.subspan(count);
    }
    if (shard_->tokens() == options_.shard_tokens) LOCKSTEP_RETURN_IF_ERROR(seal());
  }
  return {};
}

Result<void> SplitWriter::seal() {
  if (!shard_) return {};
  LOCKSTEP_TRY(ShardInfo info, shard_->seal());
  info.split = options_.split;
  shard_.reset();
  if (mask_) {
    LOCKSTEP_TRY(info.mask, mask_->seal());
  }
  if (starts_) {
    LOCKSTEP_TRY(info.starts, starts_->seal());
  }
  shards_.push_back(std::move(info));
  return {};
}

}  // namespace lockstep::data
