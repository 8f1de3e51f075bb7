#include "checkpoint/state.h"

#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio: SplitMix64's increment
constexpr uint64_t kMix = 0xd6e8feb86659fd93ULL;

// An odd number for the index behind z = (index + 1) * kGolden.
inline uint64_t weight(uint64_t z) {
  z = (z ^ (z >> 32)) * kMix;
  return (z ^ (z >> 32)) | 1;
}

template <typename Piece>
Fingerprints sums(std::span<const Piece> pieces) {
  Fingerprints sum;
  for (const Piece& p : pieces)
    sum[p.piece.tensor_key()] += fingerprint(p.bytes, p.piece.flat_start);
  return sum;
}

}  // namespace

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kParam: return "param";
    case Kind::kAdamM: return "adam_m";
    case Kind::kAdamV: return "adam_v";
  }
  return "?";
}

std::optional<Kind> kind_from_name(std::string_view name) {
  for (Kind kind : {Kind::kParam, Kind::kAdamM, Kind::kAdamV})
    if (name == kind_name(kind)) return kind;
  return std::nullopt;
}

std::string TensorPiece::dataset_path() const { return text("/", tensor_key(), "@", flat_start); }

int64_t element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += text(i > 0 ? ", " : "", shape[i]);
  return out + "]";
}

uint64_t fingerprint(std::span<const std::byte> fp32_bytes, int64_t flat_start) {
  LOCKSTEP_CHECK(fp32_bytes.size() % 4 == 0, "bytes ", fp32_bytes.size());
  uint64_t z = (static_cast<uint64_t>(flat_start) + 1) * kGolden;
  uint64_t sum = 0;
  for (size_t at = 0; at < fp32_bytes.size(); at += 4, z += kGolden) {
    uint32_t word;
    std::memcpy(&word, fp32_bytes.data() + at, 4);
    sum += word * weight(z);
  }
  return sum;
}

uint64_t copy_with_fingerprint(std::span<const std::byte> from, std::span<std::byte> to,
                               int64_t flat_start) {
  LOCKSTEP_CHECK(from.size() == to.size(), from.size(), " ", to.size());
  std::memcpy(to.data(), from.data(), from.size());
  return fingerprint(to, flat_start);
}

Fingerprints fingerprints(std::span<const LivePiece> pieces) { return sums(pieces); }
Fingerprints fingerprints(std::span<const LiveTarget> targets) { return sums(targets); }

}  // namespace lockstep::checkpoint
