// A made-up model, whose every element is a function of its name, the step and its index.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/record/state.h"

namespace lockstep::checkpoint::test_support {

inline constexpr Kind kKinds[] = {Kind::kParam, Kind::kAdamM, Kind::kAdamV};

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  int64_t count() const { return element_count(shape); }
};

// Odd dimensions, a scalar, tensors smaller than any world size, one of several chunks.
inline std::vector<TensorSpec> odd_model() {
  return {{"embed.weight", {263, 33}},   {"layers.0.wq.weight", {37, 41}},
          {"layers.0.norm.weight", {3}}, {"scale", {}},
          {"cube", {5, 7, 11}},          {"one", {1, 1}}};
}
inline std::vector<TensorSpec> large_model() {
  auto model = odd_model();
  model.push_back({"mlp.weight", {1031, 607}});  // 2.4 chunks
  return model;
}

// What element `index` of a tensor holds at `step`: like weights, most of the exponents alike.
inline float value_at(const std::string& key, int64_t step, int64_t index) {
  const uint64_t of_tensor = xxh3_64(key, static_cast<uint64_t>(step));
  const uint64_t z = mix64(of_tensor + static_cast<uint64_t>(index));
  const double uniform = static_cast<double>(z >> 11) * 0x1p-53;
  return static_cast<float>((uniform - 0.5) * 0.04);
}

// One rank's share of the state, in one buffer for each piece: of fp32, or of bf16.
struct RankState {
  std::vector<TensorPiece> pieces;
  std::vector<std::vector<float>> values;
  std::vector<std::vector<uint16_t>> halves;

  void fill(int64_t step) {
    for (size_t i = 0; i < pieces.size(); ++i)
      for (int64_t e = 0; e < pieces[i].length; ++e) {
        const float value = value_at(pieces[i].tensor_key(), step, pieces[i].flat_start + e);
        if (pieces[i].dtype == Dtype::kBf16)
          halves[i][static_cast<size_t>(e)] = float_to_bf16(value);
        else
          values[i][static_cast<size_t>(e)] = value;
      }
  }
  std::vector<LivePiece> live() const {
    std::vector<LivePiece> out;
    for (size_t i = 0; i < pieces.size(); ++i)
      out.push_back({pieces[i], halves[i].empty() ? std::as_bytes(std::span(values[i]))
                                                  : std::as_bytes(std::span(halves[i]))});
    return out;
  }
  std::vector<LiveTarget> targets() {
    std::vector<LiveTarget> out;
    for (size_t i = 0; i < pieces.size(); ++i)
      out.push_back({pieces[i], halves[i].empty() ? std::as_writable_bytes(std::span(values[i]))
                                                  : std::as_writable_bytes(std::span(halves[i]))});
    return out;
  }
  // "" or the first element that is not that of `step`.
  std::string difference(int64_t step) const {
    for (size_t i = 0; i < pieces.size(); ++i)
      for (int64_t e = 0; e < pieces[i].length; ++e) {
        const float want = value_at(pieces[i].tensor_key(), step, pieces[i].flat_start + e);
        const auto at = static_cast<size_t>(e);
        if (pieces[i].dtype == Dtype::kBf16 ? halves[i][at] != float_to_bf16(want)
                                            : std::memcmp(&want, &values[i][at], 4) != 0)
          return text(pieces[i].dataset_path(), " element ", e);
      }
    return "";
  }
};

// Rank r of w owns [n*r/w, n*(r+1)/w) of each tensor: cuts anywhere, some shards empty.
inline RankState state_of(const std::vector<TensorSpec>& model, int rank, int world_size,
                          Dtype moments = Dtype::kF32) {
  RankState state;
  for (const TensorSpec& tensor : model)
    for (Kind kind : kKinds) {
      const int64_t first = tensor.count() * rank / world_size;
      const int64_t last = tensor.count() * (rank + 1) / world_size;
      if (first == last) continue;
      const Dtype dtype = kind == Kind::kParam ? Dtype::kF32 : moments;
      const size_t count = static_cast<size_t>(last - first), of_halves = dtype == Dtype::kBf16;
      state.pieces.push_back({tensor.name, kind, tensor.shape, first, last - first, dtype});
      state.values.emplace_back((1 - of_halves) * count, -1.0f);
      state.halves.emplace_back(of_halves * count, uint16_t{0xffff});
    }
  return state;
}

}  // namespace lockstep::checkpoint::test_support
