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

// What a piece of work is cut for: to stay in a CPU's caches, or to fill a GPU. It is the same for
// all devices of a kind, for the order of sums depends on it.
enum class WorkSizes { kCpu, kGpu };

// Rows of a chunk of the head, for whose logits there is memory.
//   CPU: 32 MiB of them in fp32; it depends on the vocabulary alone.
//   GPU: 2 GiB of them in the compute type, and 2,048 rows at least. Each chunk reads the weight
//   twice; each of several also reads and writes the fp32 sum of the weight's gradient.
inline int64_t head_chunk_rows(WorkSizes sizes, int64_t vocab_size, int64_t compute_bytes) {
  constexpr int64_t kGrain = 64;
  constexpr int64_t kCpuLogits = int64_t{8} << 20;
  constexpr int64_t kGpuLogitsBytes = int64_t{2} << 30, kGpuMinRows = 2048;
  const bool gpu = sizes == WorkSizes::kGpu;
  const int64_t logits = gpu ? kGpuLogitsBytes / compute_bytes : kCpuLogits;
  return std::max(gpu ? kGpuMinRows : kGrain, logits / vocab_size / kGrain * kGrain);
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

// Does cuDNN's attention take heads of so many elements (core/kernels/cudnn_attention.h)?
inline bool cudnn_takes(int64_t head_dim) {
  return head_dim % 8 == 0 && head_dim >= 64 && head_dim <= 128;
}
// Key heads of one call of it. Its backward keeps the products of scores of all their query heads,
// in the compute type: as many as 2 GiB hold, a divisor of all; 0: not even one.
inline int64_t key_heads_at_once(int64_t sequences, int64_t length, int64_t heads,
                                 int64_t key_heads) {
  constexpr int64_t kMostProducts = int64_t{1} << 30;
  const int64_t of_one = sequences * (heads / key_heads) * length * length;
  int64_t count = key_heads;
  while (count > 0 && (key_heads % count != 0 || count * of_one > kMostProducts)) --count;
  return count;
}

}  // namespace lockstep::layout
