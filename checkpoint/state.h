// The state that a checkpoint holds, in logical coordinates: pieces of row-major fp32 tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

enum class Kind { kParam, kAdamM, kAdamV };
const char* kind_name(Kind kind);  // "param" | "adam_m" | "adam_v": also the group in the HDF5 files

// [flat_start, flat_start + length) elements of tensor `name`. Never padding; length > 0.
struct TensorPiece {
  std::string name;
  Kind kind = Kind::kParam;
  std::vector<int64_t> global_shape;
  int64_t flat_start = 0;
  int64_t length = 0;
  bool operator==(const TensorPiece&) const = default;
};

// A piece and where its bytes (fp32, length * 4) live in this process.
struct LivePiece {
  TensorPiece piece;
  std::span<const std::byte> bytes;
};
struct LiveTarget {
  TensorPiece piece;
  std::span<std::byte> bytes;
};

// Order-independent 64-bit sum over (32-bit word, global index): sums of the parts of a tensor, taken by any
// ranks in any order, add up (mod 2^64) to the sum of the whole.
uint64_t fingerprint(std::span<const std::byte> fp32_bytes, int64_t flat_start);

}  // namespace lockstep::checkpoint
