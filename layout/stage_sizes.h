// Where the stages of a model cut their work, and what they copy: sizes that their memory depends
// on. core computes with them, the plan of memory counts with them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "layout/model_spec.h"

namespace lockstep::layout {

// Blocks k-1, 2k-1, … keep only their input between forward and backward, and run forward again in
// backward. 0: none; 1: all.
inline int64_t recompute_every(const ActivationCheckpointConfig& config) {
  if (config.mode == Recompute::kNone) return 0;
  return config.mode == Recompute::kFull ? 1 : config.selective_ac_option;
}
inline bool recomputed(int64_t every, int64_t layer) {
  return every > 0 && (layer + 1) % every == 0;
}

// Rows of a chunk of the head: its logits take at most 32 MiB in fp32. It depends on the vocabulary
// alone.
inline int64_t head_chunk_rows(int64_t vocab_size) {
  constexpr int64_t kChunkLogits = int64_t{8} << 20;
  return std::max<int64_t>(64, kChunkLogits / vocab_size / 64 * 64);
}

// Do the matrices [first, first + count) lie one behind the other in memory, so that they are one
// matrix as they are? Each begins at a tile.
inline bool back_to_back(const UnitSpec& unit, int first, int count) {
  for (int i = first; i + 1 < first + count; ++i)
    if (unit.params[static_cast<size_t>(i)].elements() % kTileElements != 0) return false;
  return true;
}

// Queries of a block of fused attention over `sequences` of `length`: the scores of all heads are
// to stay in the cache.
inline int64_t attention_queries(int64_t sequences, int64_t heads, int64_t length) {
  constexpr int64_t kBlockScores = int64_t{1} << 19, kMinQueries = 16, kMaxQueries = 128;
  return std::clamp(kBlockScores / (sequences * heads * length) / kMinQueries * kMinQueries,
                    kMinQueries, kMaxQueries);
}

}  // namespace lockstep::layout
