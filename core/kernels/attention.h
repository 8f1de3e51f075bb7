// Causal softmax attention of one layer inside documents, with or without a window; each key head
// serves a group of query heads. On the CPU a run of documents of one length is worked on in blocks
// of queries, each with the keys that it sees:
//
//   scores = q k^T    probabilities = softmax over seen keys (fp32)    out = probabilities v
//
// so the work is that of the sum of the squares of lengths, and what is computed for a document
// depends on its run alone. A key head's queries are stacked, so that keys and values are never
// repeated. The products are LibTorch's batched ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <vector>

#include "core/kernels/documents.h"

namespace lockstep::core {

struct AttentionShape {
  int64_t heads, key_heads, head_dim;
  int64_t window;  // keys that a query sees, its own included; 0: all up to its own
  // Scores never exist whole, and backward computes them again; else probabilities are whole
  // matrices, kept for backward.
  bool fused;
  float scale() const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))); }
};

// What backward needs beside the projections.
struct AttentionKept {
  at::Tensor out_RD;                      // what forward returned
  std::vector<at::Tensor> probabilities;  // not fused: of each run of documents
  at::Tensor log_sum, random, unused;     // what a device's fused kernel returned beside it
};

// Kernels::attention and attention_back on the CPU.
at::Tensor attention(const AttentionShape& shape, const at::Tensor& qkv, const Documents& documents,
                     AttentionKept& kept);
at::Tensor attention_back(const AttentionShape& shape, const at::Tensor& d_out,
                          const at::Tensor& qkv, const Documents& documents,
                          const AttentionKept& kept);

}  // namespace lockstep::core
