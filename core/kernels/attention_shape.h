// Attention of one layer, as the table of operations takes it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <vector>

namespace lockstep::core {

struct AttentionShape {
  int64_t heads, key_heads, head_dim;
  int64_t window;  // keys that a query sees, its own included; 0: all up to its own
  // Scores never exist whole, and backward computes them again; else probabilities are whole
  // matrices, kept for backward.
  bool fused;
  double query_scalar = 0;  // scores are divided by its root; 0: head_dim
  float soft_cap = 0;       // scores become soft_cap * tanh(score / soft_cap); 0: they stay
  float scale() const {
    return static_cast<float>(
        1.0 / std::sqrt(query_scalar > 0 ? query_scalar : static_cast<double>(head_dim)));
  }
};

// What backward needs beside the projections.
struct AttentionKept {
  at::Tensor out_RD;                      // what forward returned
  std::vector<at::Tensor> probabilities;  // not fused: of each run of documents
  at::Tensor log_sum, random, unused;     // what a device's fused kernel returned beside it
};

}  // namespace lockstep::core
