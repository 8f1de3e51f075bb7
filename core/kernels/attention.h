// Causal softmax attention of one layer inside documents, with or without a window; each key head
// serves a group of query heads. A run of documents of one length is worked on in blocks of
// queries, each with the keys that it sees:
//
//   scores = q k^T    probabilities = softmax over seen keys (fp32)    out = probabilities v
//
// so the work is that of the sum of the squares of lengths, and what is computed for a document
// depends on its run alone. A key head's queries are stacked, so that keys and values are never
// repeated. The products are LibTorch's batched ones. Legend: R rows of all documents, C documents
// of a run, L their length, H query heads, K key heads, G = H/K, E head_dim, N = C*K stacks.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/kernels/cuda_tensors.h"
#include "core/kernels/kernels.h"
#include "layout/model_spec.h"

namespace lockstep::core {

class Attention {
 public:
  // What backward needs beside the projections.
  struct Kept {
    at::Tensor out_RD;                      // what forward returned
    std::vector<at::Tensor> probabilities;  // not fused: of each run [N, L*G, L]
    cuda::AttentionKept on_cuda;
  };
  // `window`: how many keys a query sees, its own included; 0: all. Fused: a block's scores stay in
  // the cache, and backward computes them again; else probabilities are one whole matrix, kept for
  // backward. On a CUDA device cuda::attention does it.
  Attention(const layout::DecoderShape& shape, int64_t window, bool fused);
  // qkv [R, (H + 2K) E], as projected and rotated -> [R, H*E].
  at::Tensor forward(const at::Tensor& qkv, const Documents& documents, Kept& kept) const;
  // Returns d(qkv) for d_out [R, H*E].
  at::Tensor backward(const at::Tensor& d_out_RD, const at::Tensor& qkv, const Documents& documents,
                      const Kept& kept) const;

 private:
  cuda::AttentionShape on_cuda() const { return {heads_, key_heads_, head_dim_, window_, fused_}; }
  std::vector<ScoreBlock> blocks(const DocumentRun& run) const;
  // View of the run's rows of x [R, heads*E]: [C, L, heads, E].
  at::Tensor rows_of(const at::Tensor& x, const DocumentRun& run) const;
  // Of these: the rows of a block's queries as [N, queries*G, E].
  at::Tensor stack_queries(const at::Tensor& rows, const ScoreBlock& block) const;
  void put_queries(const at::Tensor& rows, const at::Tensor& stack, const ScoreBlock& block) const;
  // View of K heads from `first_head` on: [C, K, L, E].
  at::Tensor key_heads(const at::Tensor& rows, int64_t first_head) const;
  // As one piece of memory: [N, L, E].
  at::Tensor stack_keys(const at::Tensor& rows, int64_t first_head) const;
  at::Tensor probabilities(const at::Tensor& queries, const at::Tensor& keys,
                           const ScoreBlock& block) const;
  // `kept`: the run's probabilities, undefined where fused.
  void run_back(const at::Tensor& d_out, const at::Tensor& qkv, const DocumentRun& run,
                const at::Tensor& kept, const at::Tensor& d_qkv) const;

  int64_t heads_, key_heads_, head_dim_, window_;
  bool fused_;
  float scale_;
};

}  // namespace lockstep::core
