// The sizes of a file of tokens: its header, its blocks, its integers. Format: docs/FORMAT_DATA.md.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::data {

inline constexpr int64_t kShardHeaderBytes = 64;
inline constexpr int64_t kShardBlockBytes = int64_t{1} << 20;
inline constexpr int64_t kMaxShardTokens = int64_t{1} << 40;

// "u16" -> 2, "u32" -> 4, else 0.
inline int64_t token_bytes(const std::string& dtype) {
  return dtype == "u16" ? 2 : dtype == "u32" ? 4 : 0;
}
constexpr int64_t shard_size_bytes(int64_t tokens, int64_t width) {
  return kShardHeaderBytes + tokens * width;
}
constexpr int64_t block_count(int64_t size_bytes) {
  return (size_bytes + kShardBlockBytes - 1) / kShardBlockBytes;
}

}  // namespace lockstep::data
