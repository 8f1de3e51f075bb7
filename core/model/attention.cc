#include "core/model/attention.h"

#include <algorithm>
#include <cmath>

#include "core/cuda/runtime.h"
#include "core/model/matmul.h"
#include "core/model/tensor_kernels.h"

namespace lockstep::core {
namespace {

// Scores of a block of all stacks take about this much: they are to stay in the cache.
constexpr int64_t kBlockScores = int64_t{1} << 19;
constexpr int64_t kMinQueries = 16, kMaxQueries = 128;

// The keys of a block, as one piece of memory: [N, keys, E] of [N, T, E].
at::Tensor seen_keys(const at::Tensor& stack, const ScoreBlock& b) {
  return stack.narrow(1, b.first_key, b.keys).contiguous();
}

}  // namespace

Attention::Attention(const model_spec::DecoderShape& shape, int64_t window, int64_t seq_len,
                     bool fused)
    : heads_(shape.n_heads),
      key_heads_(shape.n_kv_heads),
      head_dim_(shape.head_dim),
      seq_len_(seq_len),
      window_(window < seq_len ? window : 0),
      fused_(fused),
      scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim_)))) {}

std::vector<ScoreBlock> Attention::blocks(int64_t batch) const {
  int64_t queries = seq_len_;
  if (fused_) {
    queries = kBlockScores / (batch * heads_ * seq_len_) / kMinQueries * kMinQueries;
    queries = std::clamp(queries, kMinQueries, kMaxQueries);
  }
  const int64_t group = heads_ / key_heads_;
  std::vector<ScoreBlock> all;
  for (int64_t q = 0; q < seq_len_; q += queries) {
    const int64_t end = std::min(seq_len_, q + queries);
    const int64_t first_key = fused_ && window_ > 0 ? std::max<int64_t>(0, q - window_ + 1) : 0;
    all.push_back({.first_query = q,
                   .rows = (end - q) * group,
                   .group = group,
                   .first_key = first_key,
                   .keys = end - first_key,
                   .window = window_});
  }
  return all;
}

at::Tensor Attention::key_heads(const at::Tensor& qkv, int64_t batch, int64_t first_head) const {
  return qkv.view({batch, seq_len_, -1, head_dim_})
      .narrow(2, first_head, key_heads_)
      .transpose(1, 2);
}

at::Tensor Attention::stack_queries(const at::Tensor& x, int64_t batch,
                                    const ScoreBlock& b) const {
  return x.view({batch, seq_len_, -1, head_dim_})
      .narrow(1, b.first_query, b.rows / b.group)
      .narrow(2, 0, heads_)
      .unflatten(2, {key_heads_, b.group})
      .transpose(1, 2)
      .reshape({batch * key_heads_, b.rows, head_dim_});
}

void Attention::put_queries(at::Tensor& x, const at::Tensor& stack, int64_t batch,
                            const ScoreBlock& b) const {
  const int64_t queries = b.rows / b.group;
  x.view({batch, seq_len_, -1, head_dim_})
      .narrow(1, b.first_query, queries)
      .narrow(2, 0, heads_)
      .unflatten(2, {key_heads_, b.group})
      .copy_(stack.view({batch, key_heads_, queries, b.group, head_dim_}).transpose(1, 2));
}

at::Tensor Attention::probabilities(const at::Tensor& queries, const at::Tensor& keys,
                                    const ScoreBlock& b) const {
  at::Tensor p = product(queries, keys.transpose(1, 2));
  softmax_of_seen(p, b, scale_);
  return p;
}

at::Tensor Attention::forward(const at::Tensor& qkv, int64_t batch, Kept& kept) const {
  if constexpr (cuda::kBuilt)
    if (qkv.is_cuda()) return kept.out_RD = cuda::attention(on_cuda(), qkv, kept.on_cuda);
  const at::Tensor k = key_heads(qkv, batch, heads_).reshape({-1, seq_len_, head_dim_});
  const at::Tensor v =
      key_heads(qkv, batch, heads_ + key_heads_).reshape({-1, seq_len_, head_dim_});
  kept.out_RD = at::empty({batch * seq_len_, heads_ * head_dim_}, qkv.options());
  for (const ScoreBlock& b : blocks(batch)) {
    const at::Tensor p = probabilities(stack_queries(qkv, batch, b), seen_keys(k, b), b);
    put_queries(kept.out_RD, product(p, seen_keys(v, b)), batch, b);
    if (!fused_) kept.probabilities = p;
  }
  return kept.out_RD;
}

// The gradients of keys and values are sums over blocks, in fp32.
at::Tensor Attention::backward(const at::Tensor& d_out, const at::Tensor& qkv, int64_t batch,
                               const Kept& kept) const {
  if constexpr (cuda::kBuilt)
    if (qkv.is_cuda())
      return cuda::attention_back(on_cuda(), d_out, qkv, kept.out_RD, kept.on_cuda);
  const at::Tensor k = key_heads(qkv, batch, heads_).reshape({-1, seq_len_, head_dim_});
  const at::Tensor v =
      key_heads(qkv, batch, heads_ + key_heads_).reshape({-1, seq_len_, head_dim_});
  at::Tensor d_qkv = at::empty_like(qkv);
  at::Tensor dk = at::zeros(k.sizes(), at::kFloat), dv = at::zeros(k.sizes(), at::kFloat);
  for (const ScoreBlock& b : blocks(batch)) {
    const at::Tensor queries = stack_queries(qkv, batch, b), keys = seen_keys(k, b);
    const at::Tensor d = stack_queries(d_out, batch, b);
    const at::Tensor p = fused_ ? probabilities(queries, keys, b) : kept.probabilities;
    dv.narrow(1, b.first_key, b.keys).add_(product(p.transpose(1, 2), d));
    at::Tensor d_scores = product(d, seen_keys(v, b).transpose(1, 2));
    softmax_of_seen_back(p, d_scores, b, scale_);
    put_queries(d_qkv, product(d_scores, keys), batch, b);
    dk.narrow(1, b.first_key, b.keys).add_(product(d_scores.transpose(1, 2), queries));
  }
  key_heads(d_qkv, batch, heads_).copy_(dk.view({batch, key_heads_, seq_len_, head_dim_}));
  key_heads(d_qkv, batch, heads_ + key_heads_)
      .copy_(dv.view({batch, key_heads_, seq_len_, head_dim_}));
  return d_qkv;
}

}  // namespace lockstep::core
