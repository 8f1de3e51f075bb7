// A made-up model, whose every element is a function of its name, the step and its index.
#pragma once

#include <cstring>
#include <string>
#include <vector>

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

// One rank's share of the state, in one buffer for each piece.
struct RankState {
  std::vector<TensorPiece> pieces;
  std::vector<std::vector<float>> values;

  void fill(int64_t step) {
    for (size_t i = 0; i < pieces.size(); ++i)
      for (int64_t e = 0; e < pieces[i].length; ++e)
        values[i][static_cast<size_t>(e)] =
            value_at(pieces[i].tensor_key(), step, pieces[i].flat_start + e);
  }
  std::vector<LivePiece> live() const {
    std::vector<LivePiece> out;
    for (size_t i = 0; i < pieces.size(); ++i)
      out.push_back({pieces[i], std::as_bytes(std::span(values[i]))});
    return out;
  }
  std::vector<LiveTarget> targets() {
    std::vector<LiveTarget> out;
    for (size_t i = 0; i < pieces.size(); ++i)
      out.push_back({pieces[i], std::as_writable_bytes(std::span(values[i]))});
    return out;
  }
  // "" or the first element that is not that of `step`.
  std::string difference(int64_t step) const {
    for (size_t i = 0; i < pieces.size(); ++i)
      for (int64_t e = 0; e < pieces[i].length; ++e) {
        const float want = value_at(pieces[i].tensor_key(), step, pieces[i].flat_start + e);
        if (std::memcmp(&want, &values[i][static_cast<size_t>(e)], 4) != 0)
          return text(pieces[i].dataset_path(), " element ", e);
      }
    return "";
  }
};

// Rank r of w owns [n*r/w, n*(r+1)/w) of each tensor: cuts anywhere, some shards empty.
inline RankState state_of(const std::vector<TensorSpec>& model, int rank, int world_size) {
  RankState state;
  for (const TensorSpec& tensor : model)
    for (Kind kind : kKinds) {
      const int64_t first = tensor.count() * rank / world_size;
      const int64_t last = tensor.count() * (rank + 1) / world_size;
      if (first == last) continue;
      state.pieces.push_back({tensor.name, kind, tensor.shape, first, last - first});
      state.values.emplace_back(static_cast<size_t>(last - first), -1.0f);
    }
  return state;
}

}  // namespace lockstep::checkpoint::test_support
