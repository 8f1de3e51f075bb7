// One split's tokens, cut into shards of exactly `shard_tokens`, the last one shorter; beside each
// shard, where wanted, files with a bit for each token.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "data/formats/manifest.h"
#include "data/formats/token_shard.h"

namespace lockstep::data {

class SplitWriter {
 public:
  struct Options {
    std::filesystem::path folder;
    std::string split, dtype;
    int64_t shard_tokens = 0;
    bool has_mask = false, has_starts = false;
  };
  SplitWriter(FileSystem& file_system, Options options)
      : file_system_(file_system), options_(std::move(options)) {}

  // `in_loss`, `starts`: one byte a token, 0 or 1; each is looked at where its file is wanted.
  // Errors: kIo, kNoSpace.
  Result<void> append(std::span<const uint32_t> tokens, std::span<const uint8_t> in_loss,
                      std::span<const uint8_t> starts = {});
  // Ends the last shard.
  Result<void> seal();
  const std::vector<ShardInfo>& shards() const { return shards_; }

 private:
  // A file of bits that is being written.
  struct Bits {
    std::unique_ptr<ShardWriter> file;
    uint32_t word = 0;
    int used = 0;  // bits of the word
    Result<void> append(std::span<const uint8_t> bits);
    Result<BitsInfo> seal();
  };
  Result<void> open_shard();

  FileSystem& file_system_;
  const Options options_;
  std::unique_ptr<ShardWriter> shard_;
  std::optional<Bits> mask_, starts_;
  std::vector<ShardInfo> shards_;
};

}  // namespace lockstep::data
