#include "core/kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "core/device/runtime.h"
#include "core/kernels/matmul.h"
#include "core/kernels/tensor_kernels.h"
#include "layout/stage_sizes.h"

namespace lockstep::core {
namespace {

// The keys of a block, as one piece of memory: [N, keys, E] of [N, L, E].
at::Tensor seen_keys(const at::Tensor& stack, const ScoreBlock& b) {
  return stack.narrow(1, b.first_key, b.keys).contiguous();
}

}  // namespace

Attention::Attention(const layout::DecoderShape& shape, int64_t window, bool fused)
    : heads_(shape.n_heads),
      key_heads_(shape.n_kv_heads),
      head_dim_(shape.head_dim),
      window_(window),
      fused_(fused),
      scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim_)))) {}

std::vector<ScoreBlock> Attention::blocks(const DocumentRun& run) const {
  const int64_t queries =
      fused_ ? layout::attention_queries(run.count, heads_, run.length) : run.length;
  const int64_t group = heads_ / key_heads_;
  std::vector<ScoreBlock> all;
  for (int64_t q = 0; q < run.length; q += queries) {
    const int64_t end = std::min(run.length, q + queries);
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

at::Tensor Attention::rows_of(const at::Tensor& x, const DocumentRun& run) const {
  return x.narrow(0, run.first_row, run.count * run.length)
      .view({run.count, run.length, -1, head_dim_});
}

at::Tensor Attention::stack_queries(const at::Tensor& rows, const ScoreBlock& b) const {
  return rows.narrow(1, b.first_query, b.rows / b.group)
      .narrow(2, 0, heads_)
      .unflatten(2, {key_heads_, b.group})
      .transpose(1, 2)
      .reshape({-1, b.rows, head_dim_});
}

void Attention::put_queries(const at::Tensor& rows, const at::Tensor& stack,
                            const ScoreBlock& b) const {
  const int64_t queries = b.rows / b.group;
  rows.narrow(1, b.first_query, queries)
      .narrow(2, 0, heads_)
      .unflatten(2, {key_heads_, b.group})
      .copy_(stack.view({-1, key_heads_, queries, b.group, head_dim_}).transpose(1, 2));
}

at::Tensor Attention::key_heads(const at::Tensor& rows, int64_t first_head) const {
  return rows.narrow(2, first_head, key_heads_).transpose(1, 2);
}

at::Tensor Attention::stack_keys(const at::Tensor& rows, int64_t first_head) const {
  return key_heads(rows, first_head).reshape({-1, rows.size(1), head_dim_});
}

at::Tensor Attention::probabilities(const at::Tensor& queries, const at::Tensor& keys,
                                    const ScoreBlock& b) const {
  at::Tensor p = product(queries, keys.transpose(1, 2));
  softmax_of_seen(p, b, scale_);
  return p;
}

at::Tensor Attention::forward(const at::Tensor& qkv, const Documents& documents, Kept& kept) const {
  if constexpr (cuda::kBuilt)
    if (qkv.is_cuda())
      return kept.out_RD = cuda::attention(on_cuda(), qkv, documents, kept.on_cuda);
  kept.probabilities.clear();
  kept.out_RD = at::empty({qkv.size(0), heads_ * head_dim_}, qkv.options());
  for (const DocumentRun& run : documents.runs) {
    const at::Tensor rows = rows_of(qkv, run), out = rows_of(kept.out_RD, run);
    const at::Tensor k = stack_keys(rows, heads_), v = stack_keys(rows, heads_ + key_heads_);
    for (const ScoreBlock& b : blocks(run)) {
      const at::Tensor p = probabilities(stack_queries(rows, b), seen_keys(k, b), b);
      put_queries(out, product(p, seen_keys(v, b)), b);
      if (!fused_) kept.probabilities.push_back(p);
    }
  }
  return kept.out_RD;
}

// The gradients of keys and values are sums over blocks, in fp32.
void Attention::run_back(const at::Tensor& d_out, const at::Tensor& qkv, const DocumentRun& run,
                         const at::Tensor& kept, const at::Tensor& d_qkv) const {
  const at::Tensor rows = rows_of(qkv, run), d_rows = rows_of(d_qkv, run);
  const at::Tensor k = stack_keys(rows, heads_), v = stack_keys(rows, heads_ + key_heads_);
  at::Tensor dk = at::zeros(k.sizes(), at::kFloat), dv = at::zeros(k.sizes(), at::kFloat);
  for (const ScoreBlock& b : blocks(run)) {
    const at::Tensor queries = stack_queries(rows, b), keys = seen_keys(k, b);
    const at::Tensor d = stack_queries(rows_of(d_out, run), b);
    const at::Tensor p = fused_ ? probabilities(queries, keys, b) : kept;
    dv.narrow(1, b.first_key, b.keys).add_(product(p.transpose(1, 2), d));
    at::Tensor d_scores = product(d, seen_keys(v, b).transpose(1, 2));
    softmax_of_seen_back(p, d_scores, b, scale_);
    put_queries(d_rows, product(d_scores, keys), b);
    dk.narrow(1, b.first_key, b.keys).add_(product(d_scores.transpose(1, 2), queries));
  }
  const auto put = [&](const at::Tensor& sum, int64_t first_head) {
    at::Tensor heads = key_heads(d_rows, first_head);
    heads.copy_(sum.view(heads.sizes()));
  };
  put(dk, heads_);
  put(dv, heads_ + key_heads_);
}

at::Tensor Attention::backward(const at::Tensor& d_out, const at::Tensor& qkv,
                               const Documents& documents, const Kept& kept) const {
  if constexpr (cuda::kBuilt)
    if (qkv.is_cuda())
      return cuda::attention_back(on_cuda(), d_out, qkv, kept.out_RD, documents, kept.on_cuda);
  LOCKSTEP_CHECK(fused_ || kept.probabilities.size() == documents.runs.size(),
                 kept.probabilities.size(), " of ", documents.runs.size());
  at::Tensor d_qkv = at::empty_like(qkv);
  for (size_t i = 0; i < documents.runs.size(); ++i)
    run_back(d_out, qkv, documents.runs[i], fused_ ? at::Tensor() : kept.probabilities[i], d_qkv);
  return d_qkv;
}

}  // namespace lockstep::core
