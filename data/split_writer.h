// One split's tokens, cut into shards of exactly `shard_tokens`, the last one shorter; beside each
// shard, when there is a mask, a file of its bits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "data/manifest.h"
#include "data/token_shard.h"

namespace lockstep::data {

class SplitWriter {
 public:
  struct Options {
    std::filesystem::path folder;
    std::string split, dtype;
    int64_t shard_tokens = 0;
    bool has_mask = false;
  };
  SplitWriter(FileSystem& file_system, Options options)
      : file_system_(file_system), options_(std::move(options)) {}

  // `in_loss`: one byte a token, 0 or 1; not looked at without a mask.
  // Errors: kIo, kNoSpace.
  Result<void> append(std::span<const uint32_t> tokens, std::span<const uint8_t> in_loss);
  // Ends the last shard.
  Result<void> seal();
  const std::vector<ShardInfo>& shards() const { return shards_; }

 private:
  Result<void> open_shard();
  Result<void> append_mask(std::span<const uint8_t> in_loss);

  FileSystem& file_system_;
  const Options options_;
  std::unique_ptr<ShardWriter> shard_, mask_;
  uint32_t mask_word_ = 0;
  int mask_bits_ = 0;  // of mask_word_, used
  std::vector<ShardInfo> shards_;
};

}  // namespace lockstep::data
