// What the golden checkpoints hold: every element is a function of its tensor's key and its index,
// the same as in h5py_golden_test.py. Neither may ever change.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/checkpoint/world.h"

namespace lockstep::checkpoint::golden {

inline constexpr int64_t kStep = 12;
inline constexpr int kRanks = 2, kRanksInParts = 10, kRanksOfAFile = 4;
inline constexpr const char* kCodecs[] = {"zstd", "none", "gzip"};

// Odd shapes, a scalar, tensors smaller than the world, and where it compresses, several chunks.
inline std::vector<test_support::TensorSpec> model(std::string_view codec) {
  std::vector<test_support::TensorSpec> tensors = {
      {"embed.weight", {57, 33}}, {"layers.0.wq.weight", {37, 41}},
      {"norm.weight", {3}},       {"scale", {}},
      {"cube", {5, 7, 11}},       {"one", {1, 1}}};
  if (codec != "none") tensors.push_back({"long.weight", {3, 180001}});
  return tensors;
}

inline float value(std::string_view key, int64_t index) {
  uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  const bool is_long = key.find("/long.") != std::string_view::npos;  // runs of 4096 alike
  uint64_t z =
      (hash + static_cast<uint64_t>(is_long ? index >> 12 : index)) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93ULL;
  return std::bit_cast<float>(static_cast<uint32_t>(z >> 32 & 0x807fffffU) | 0x3c000000U);
}

// Calls visit(element, value) for every element of a rank's share.
template <typename Visitor>
void for_each_element(test_support::RankState& state, Visitor visit) {
  for (size_t i = 0; i < state.pieces.size(); ++i)
    for (int64_t e = 0; e < state.pieces[i].length; ++e)
      visit(state.values[i][static_cast<size_t>(e)],
            value(state.pieces[i].tensor_key(), state.pieces[i].flat_start + e));
}

}  // namespace lockstep::checkpoint::golden
