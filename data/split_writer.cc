#include "data/split_writer.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::data {

Result<void> SplitWriter::open_shard() {
  std::string number = text(shards_.size());
  number.insert(0, number.size() < 5 ? 5 - number.size() : 0, '0');
  const std::string stem = text(options_.split, "_", number);
  LOCKSTEP_TRY(shard_, ShardWriter::create(file_system_, options_.folder,
                                           text(stem, kShardSuffix), options_.dtype));
  if (options_.has_mask) {
    LOCKSTEP_TRY(mask_, ShardWriter::create(file_system_, options_.folder,
                                            text(stem, kMaskSuffix), "u16"));
  }
  return {};
}

Result<void> SplitWriter::append_mask(std::span<const uint8_t> in_loss) {
  std::vector<uint32_t> words;
  for (const uint8_t bit : in_loss) {
    mask_word_ |= uint32_t{bit} << mask_bits_;
    if (++mask_bits_ < kMaskWordBits) continue;
    words.push_back(mask_word_);
    mask_word_ = 0;
    mask_bits_ = 0;
  }
  return mask_->append(words);
}

Result<void> SplitWriter::append(std::span<const uint32_t> tokens,
                                 std::span<const uint8_t> in_loss) {
  while (!tokens.empty()) {
    if (!shard_) LOCKSTEP_RETURN_IF_ERROR(open_shard());
    const auto room = static_cast<size_t>(options_.shard_tokens - shard_->tokens());
    const size_t count = std::min(room, tokens.size());
    LOCKSTEP_RETURN_IF_ERROR(shard_->append(tokens.first(count)));
    tokens = tokens.subspan(count);
    if (mask_) {
      LOCKSTEP_RETURN_IF_ERROR(append_mask(in_loss.first(count)));
      in_loss = in_loss.subspan(count);
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
    if (mask_bits_ > 0) LOCKSTEP_RETURN_IF_ERROR(mask_->append(std::span(&mask_word_, 1)));
    mask_word_ = 0;
    mask_bits_ = 0;
    LOCKSTEP_TRY(const ShardInfo mask, mask_->seal());
    info.mask = MaskInfo{mask.file, mask.block_xxh3};
    mask_.reset();
  }
  shards_.push_back(std::move(info));
  return {};
}

}  // namespace lockstep::data
