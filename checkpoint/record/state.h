// The state that a checkpoint holds, in logical coordinates: pieces of row-major tensors, of fp32
// or bf16 elements.
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

// Of elements. A checkpoint holds fp32 and bf16; the tools read fp16 as well.
enum class Dtype { kF32, kBf16, kF16 };
constexpr int64_t dtype_bytes(Dtype dtype) { return dtype == Dtype::kF32 ? 4 : 2; }
// As manifests and HDF5 attributes have it: "float32" | "bfloat16" | "float16".
const char* dtype_word(Dtype dtype);

// [flat_start, flat_start + length) elements of tensor `name`. Never padding; length > 0.
struct TensorPiece {
  std::string name;
  Kind kind = Kind::kParam;
  std::vector<int64_t> global_shape;
  int64_t flat_start = 0;
  int64_t length = 0;
  Dtype dtype = Dtype::kF32;
  bool operator==(const TensorPiece&) const = default;

  int64_t element_bytes() const { return dtype_bytes(dtype); }
  int64_t size_bytes() const { return length * element_bytes(); }

  std::string tensor_key() const { return std::string(kind_name(kind)) + "/" + name; }
  // In a rank file: "/param/tok_embeddings.weight@0".
  std::string dataset_path() const;
};

// A piece and where its size_bytes() live in this process.
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

// Order-independent 64-bit sum over (element's bits, global index): sums of the parts of a tensor,
// taken by any ranks in any order, add up (mod 2^64) to the sum of the whole. Each element is
// multiplied by an odd number that depends on its index, so one changed element always changes the
// sum. docs/FORMAT.md has the formula.
uint64_t fingerprint(std::span<const std::byte> bytes, int64_t flat_start,
                     Dtype dtype = Dtype::kF32);
// Copies `from` to `to` and returns the fingerprint of the bytes that it copied, in one pass, past
// the caches where the CPU can: as fast as memory. Requires: equal sizes, no overlap.
uint64_t copy_with_fingerprint(std::span<const std::byte> from, std::span<std::byte> to,
                               int64_t flat_start, Dtype dtype = Dtype::kF32);

// Fingerprints by tensor_key(), parts added up.
using Fingerprints = std::map<std::string, uint64_t>;
Fingerprints fingerprints(std::span<const LivePiece> pieces);
Fingerprints fingerprints(std::span<const LiveTarget> targets);

}  // namespace lockstep::checkpoint
