// Softmax on plain memory, as attention and the loss need it. No Torch. T is float or Bf16;
// arithmetic is fp32, rounded once on store.
#pragma once

#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace lockstep::core {

// Scores of some queries and keys of a sequence: rows = queries * group, row r of query
// first_query + r / group; column k of key first_key + k. A query sees no later key, nor (window >
// 0) those `window` or more back. Every query sees at least one key of the block.
struct ScoreBlock {
  int64_t first_query, rows, group, first_key, keys, window;
};
// In place on scores [stacks, rows, keys]: softmax(scale * row) over the keys that are seen, 0 for
// others.
template <typename Place, typename T>
void masked_softmax(T* scores, int64_t stacks, const ScoreBlock& block, float scale);
// dp becomes the scores' gradient, scale * p * (dp - sum(p * dp)) by row; 0 for unseen keys.
template <typename Place, typename T>
void masked_softmax_backward(const T* p, T* dp, int64_t stacks, const ScoreBlock& block,
                             float scale);

// What a token's loss is, beside the cross-entropy. With s = log(sum(exp(logits))) and e =
// label_smoothing:
//   loss       s - (1 - e) logits[label] - e mean(logits) + z_loss s^2
//   gradient   (1 + 2 z_loss s) softmax(logits) - (1 - e) onehot(label) - e / vocab
// (torch.nn.functional.cross_entropy's label_smoothing; z-loss as PaLM, section 5.)
struct TokenLoss {
  double z_loss = 0, label_smoothing = 0;
};
// losses[r] is row r's, fp64; 0 for label -100. With want_gradients logits [rows, vocab] become
// their gradient times dy (0 for label -100); without, they are used up.
template <typename Place, typename T>
void cross_entropy(T* logits, const int64_t* labels, int64_t rows, int64_t vocab,
                   const TokenLoss& loss, float dy, bool want_gradients, double* losses);

}  // namespace lockstep::core
