// The sizes of a file of tokens: its header, its blocks, its integers, its table of checksums.
// Format: docs/FORMAT_DATA.md.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::data {

inline constexpr int64_t kShardHeaderBytes = 64;
// What is read and checked for the first sample that lies in it: small, for samples are drawn at
// random.
inline constexpr int64_t kShardBlockBytes = int64_t{1} << 16;
inline constexpr int64_t kOldBlockBytes = int64_t{1} << 20;  // of version 1
inline constexpr int64_t kMaxShardTokens = int64_t{1} << 40;

// "u16" -> 2, "u32" -> 4, else 0.
inline int64_t token_bytes(const std::string& dtype) {
  return dtype == "u16" ? 2 : dtype == "u32" ? 4 : 0;
}
// Where token `tokens` begins, counted from 0; where the tokens end, of a shard that has so many.
constexpr int64_t token_offset(int64_t tokens, int64_t width) {
  return kShardHeaderBytes + tokens * width;
}
// Of `bytes` bytes that are checked.
constexpr int64_t block_count(int64_t bytes, int64_t block_bytes = kShardBlockBytes) {
  return (bytes + block_bytes - 1) / block_bytes;
}
// Where the table of checksums begins, one of 8 bytes for each block.
constexpr int64_t table_offset(int64_t tokens, int64_t width) {
  constexpr int64_t kAlignment = 8;
  return (token_offset(tokens, width) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace lockstep::data
