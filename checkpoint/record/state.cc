#include "checkpoint/record/state.h"

#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

template <typename Piece>
Fingerprints sums(std::span<const Piece> pieces) {
  Fingerprints sum;
  for (const Piece& p : pieces)
    sum[p.piece.tensor_key()] += fingerprint(p.bytes, p.piece.flat_start, p.piece.dtype);
  return sum;
}

}  // namespace

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kParam: return "param";
    case Kind::kAdamM: return "adam_m";
    case Kind::kAdamV: return "adam_v";
    case Kind::kMomentum: return "momentum";
  }
  return "?";
}

std::optional<Kind> kind_from_name(std::string_view name) {
  for (Kind kind : kAllKinds)
    if (name == kind_name(kind)) return kind;
  return std::nullopt;
}

const char* dtype_word(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32: return "float32";
    case Dtype::kBf16: return "bfloat16";
    case Dtype::kF16: return "float16";
  }
  return "?";
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

Fingerprints fingerprints(std::span<const LivePiece> pieces) { return sums(pieces); }
Fingerprints fingerprints(std::span<const LiveTarget> targets) { return sums(targets); }

}  // namespace lockstep::checkpoint
