// The state that a checkpoint holds, in logical coordinates: pieces of row-major fp32 tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoint {

enum class Kind { kParam, kAdamM, kAdamV, kMomentum };
inline constexpr Kind kAllKinds[] = {Kind::kParam, Kind::kAdamM, Kind::kAdamV, Kind::kMomentum};
// "param" | "adam_m" | "adam_v" | "momentum": also the group in HDF5 files.
const char* kind_name(Kind kind);
std::optional<Kind> kind_from_name(std::string_view name);

// [flat_start, flat_start + length) elements of tensor `name`. Never padding; length > 0.
struct TensorPiece {
  std::string name;
  Kind kind = Kind::kParam;
  std::vector<int64_t> global_shape;
  int64_t flat_start = 0;
  int64_t length = 0;
  bool operator==(const TensorPiece&) const = default;

  std::string tensor_key() const { return std::string(kind_name(kind)) + "/" + name; }
  // In a rank file: "/param/tok_embeddings.weight@0".
  std::string dataset_path() const;
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

int64_t element_count(const std::vector<int64_t>& shape);   // 1 for a scalar
std::string shape_text(const std::vector<int64_t>& shape);  // "[256, 64]"

// Order-independent 64-bit sum over (32-bit word, global index): sums of the parts of a tensor,
// taken by any ranks in any order, add up (mod 2^64) to the sum of the whole. Each word is
// multiplied by an odd number that depends on its index, so one changed word always changes the
// sum. docs/FORMAT.md has the formula.
uint64_t fingerprint(std::span<const std::byte> fp32_bytes, int64_t flat_start);
// Copies `from` to `to` and returns the fingerprint of the bytes that it copied, in one pass, past
// the caches where the CPU can: as fast as memory. Requires: equal sizes, no overlap.
uint64_t copy_with_fingerprint(std::span<const std::byte> from, std::span<std::byte> to,
                               int64_t flat_start);

// Fingerprints by tensor_key(), parts added up.
using Fingerprints = std::map<std::string, uint64_t>;
Fingerprints fingerprints(std::span<const LivePiece> pieces);
Fingerprints fingerprints(std::span<const LiveTarget> targets);

}  // namespace lockstep::checkpoint
