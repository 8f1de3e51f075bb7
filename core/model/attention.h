// Causal softmax attention of one layer, with or without a window; each key head serves a group of
// query heads. Worked on in blocks of queries, each with the keys that it sees:
//
//   scores = q k^T    probabilities = softmax over seen keys (fp32)    out = probabilities v
//
// A key head's queries are stacked, so that keys and values are never repeated. The products are
// LibTorch's batched ones. Legend: B sequences, T tokens, R = B*T rows, H query heads, K key heads,
// G = H/K, E head_dim, N = B*K stacks.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/model/cuda_tensors.h"
#include "core/model/kernels.h"
#include "model_spec/model_spec.h"

namespace lockstep::core {

class Attention {
 public:
  // What backward needs beside the projections.
  struct Kept {
    at::Tensor out_RD;         // what forward returned
    at::Tensor probabilities;  // not fused: [N, T*G, T]
    cuda::AttentionKept on_cuda;
  };
  // `window`: how many keys a query sees, its own included; 0: all. Fused: a block's scores stay in
  // the cache, and backward computes them again; else probabilities are one whole matrix, kept for
  // backward. On a CUDA device cuda::attention does it.
  Attention(const model_spec::DecoderShape& shape, int64_t window, int64_t seq_len, bool fused);
  // qkv [R, (H + 2K) E], as projected and rotated -> [R, H*E].
  at::Tensor forward(const at::Tensor& qkv, int64_t batch, Kept& kept) const;
  // Returns d(qkv) for d_out [R, H*E].
  at::Tensor backward(const at::Tensor& d_out_RD, const at::Tensor& qkv, int64_t batch,
                      const Kept& kept) const;

 private:
  cuda::AttentionShape on_cuda() const {
    return {heads_, key_heads_, head_dim_, seq_len_, window_, fused_};
  }
  std::vector<ScoreBlock> blocks(int64_t batch) const;
  // The rows of a block's queries in x [R, >= H*E], as [N, queries*G, E].
  at::Tensor stack_queries(const at::Tensor& x, int64_t batch, const ScoreBlock& block) const;
  // View of K heads of qkv from `first_head` on: [B, K, T, E].
  at::Tensor key_heads(const at::Tensor& qkv, int64_t batch, int64_t first_head) const;
  void put_queries(at::Tensor& x, const at::Tensor& stack, int64_t batch,
                   const ScoreBlock& block) const;
  at::Tensor probabilities(const at::Tensor& queries, const at::Tensor& keys,
                           const ScoreBlock& block) const;

  int64_t heads_, key_heads_, head_dim_, seq_len_, window_;
  bool fused_;
  float scale_;
};

}  // namespace lockstep::core
