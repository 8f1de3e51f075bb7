#include "core/kernels/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <algorithm>

#include "base/check.h"
#include "core/kernels/matmul.h"
#include "layout/stage_sizes.h"

namespace lockstep::core {
namespace {

// The keys of a block, as one piece of memory: [N, keys, E] of [N, L, E].
at::Tensor seen_keys(const at::Tensor& stack, const ScoreBlock& b) {
  return stack.narrow(1, b.first_key, b.keys).contiguous();
}

at::Tensor copy_of(const at::Tensor& x) { return at::empty_like(x).copy_(x); }

// Legend: R rows of all documents, C documents of a run, L their length, H query heads, K key
// heads, G = H/K, E head_dim, N = C*K stacks.
class Attention : AttentionShape {
 public:
  Attention(const Kernels& kernels, const AttentionShape& shape)
      : AttentionShape(shape), kernels_(kernels) {}
  at::Tensor forward(const at::Tensor& qkv, const Documents& documents, AttentionKept& kept) const;
  at::Tensor backward(const at::Tensor& d_out_RD, const at::Tensor& qkv, const Documents& documents,
                      const AttentionKept& kept) const;

 private:
  std::vector<ScoreBlock> blocks(const DocumentRun& run) const;
  // View of the run's rows of x [R, heads*E]: [C, L, heads, E].
  at::Tensor rows_of(const at::Tensor& x, const DocumentRun& run) const;
  // Of these: the rows of a block's queries as [N, queries*G, E].
  at::Tensor stack_queries(const at::Tensor& rows, const ScoreBlock& block) const;
  void put_queries(const at::Tensor& rows, const at::Tensor& stack, const ScoreBlock& block) const;
  // View of K heads from `first_head` on: [C, K, L, E].
  at::Tensor key_heads_of(const at::Tensor& rows, int64_t first_head) const;
  // As one piece of memory: [N, L, E].
  at::Tensor stack_keys(const at::Tensor& rows, int64_t first_head) const;
  // Capped; else as the product gives them, and softmax scales them.
  at::Tensor scores(const at::Tensor& queries, const at::Tensor& keys) const;
  float softmax_scale() const { return soft_cap > 0 ? 1.0f : scale(); }
  at::Tensor probabilities(at::Tensor scores, const ScoreBlock& block) const;
  // `kept`: the run's probabilities [N, L*G, L], undefined where fused.
  void run_back(const at::Tensor& d_out, const at::Tensor& qkv, const DocumentRun& run,
                const at::Tensor& kept, const at::Tensor& d_qkv) const;

  const Kernels& kernels_;
};

std::vector<ScoreBlock> Attention::blocks(const DocumentRun& run) const {
  const int64_t queries =
      fused ? layout::attention_queries(run.count, heads, run.length) : run.length;
  const int64_t group = heads / key_heads;
  std::vector<ScoreBlock> all;
  for (int64_t q = 0; q < run.length; q += queries) {
    const int64_t end = std::min(run.length, q + queries);
    const int64_t first_key = fused && window > 0 ? std::max<int64_t>(0, q - window + 1) : 0;
    all.push_back({.first_query = q,
                   .rows = (end - q) * group,
                   .group = group,
                   .first_key = first_key,
                   .keys = end - first_key,
                   .window = window});
  }
  return all;
}

at::Tensor Attention::rows_of(const at::Tensor& x, const DocumentRun& run) const {
  return x.narrow(0, run.first_row, run.count * run.length)
      .view({run.count, run.length, -1, head_dim});
}

at::Tensor Attention::stack_queries(const at::Tensor& rows, const ScoreBlock& b) const {
  return rows.narrow(1, b.first_query, b.rows / b.group)
      .narrow(2, 0, heads)
      .unflatten(2, {key_heads, b.group})
      .transpose(1, 2)
      .reshape({-1, b.rows, head_dim});
}

void Attention::put_queries(const at::Tensor& rows, const at::Tensor& stack,
                            const ScoreBlock& b) const {
  const int64_t queries = b.rows / b.group;
  rows.narrow(1, b.first_query, queries)
      .narrow(2, 0, heads)
      .unflatten(2, {key_heads, b.group})
      .copy_(stack.view({-1, key_heads, queries, b.group, head_dim}).transpose(1, 2));
}

at::Tensor Attention::key_heads_of(const at::Tensor& rows, int64_t first_head) const {
  return rows.narrow(2, first_head, key_heads).transpose(1, 2);
}

at::Tensor Attention::stack_keys(const at::Tensor& rows, int64_t first_head) const {
  return key_heads_of(rows, first_head).reshape({-1, rows.size(1), head_dim});
}

at::Tensor Attention::scores(const at::Tensor& queries, const at::Tensor& keys) const {
  at::Tensor s = product(queries, keys.transpose(1, 2));
  if (soft_cap > 0) kernels_.soft_cap(s, scale(), soft_cap);
  return s;
}

at::Tensor Attention::probabilities(at::Tensor s, const ScoreBlock& b) const {
  kernels_.softmax_of_seen(s, b, softmax_scale());
  return s;
}

at::Tensor Attention::forward(const at::Tensor& qkv, const Documents& documents,
                              AttentionKept& kept) const {
  kept.probabilities.clear();
  kept.out_RD = at::empty({qkv.size(0), heads * head_dim}, qkv.options());
  for (const DocumentRun& run : documents.runs) {
    const at::Tensor rows = rows_of(qkv, run), out = rows_of(kept.out_RD, run);
    const at::Tensor k = stack_keys(rows, heads), v = stack_keys(rows, heads + key_heads);
    for (const ScoreBlock& b : blocks(run)) {
      const at::Tensor p = probabilities(scores(stack_queries(rows, b), seen_keys(k, b)), b);
      put_queries(out, product(p, seen_keys(v, b)), b);
      if (!fused) kept.probabilities.push_back(p);
    }
  }
  return kept.out_RD;
}

// The gradients of keys and values are sums over blocks, in fp32. A cap's gradient needs the
// scores, so they are computed again.
void Attention::run_back(const at::Tensor& d_out, const at::Tensor& qkv, const DocumentRun& run,
                         const at::Tensor& kept, const at::Tensor& d_qkv) const {
  const at::Tensor rows = rows_of(qkv, run), d_rows = rows_of(d_qkv, run);
  const at::Tensor k = stack_keys(rows, heads), v = stack_keys(rows, heads + key_heads);
  const auto fp32 = k.options().dtype(at::kFloat);
  const at::Tensor dk = at::zeros(k.sizes(), fp32), dv = at::zeros(k.sizes(), fp32);
  for (const ScoreBlock& b : blocks(run)) {
    const at::Tensor queries = stack_queries(rows, b), keys = seen_keys(k, b);
    const at::Tensor d = stack_queries(rows_of(d_out, run), b);
    const at::Tensor again = fused || soft_cap > 0 ? scores(queries, keys) : at::Tensor();
    const at::Tensor capped = soft_cap > 0 ? again : at::Tensor();
    const at::Tensor p =
        fused ? probabilities(capped.defined() ? copy_of(capped) : again, b) : kept;
    dv.narrow(1, b.first_key, b.keys).add_(product(p.transpose(1, 2), d));
    at::Tensor d_scores = product(d, seen_keys(v, b).transpose(1, 2));
    kernels_.softmax_of_seen_back(p, d_scores, b, softmax_scale());
    if (soft_cap > 0) kernels_.soft_cap_back(capped, d_scores, scale(), soft_cap);
    put_queries(d_rows, product(d_scores, keys), b);
    dk.narrow(1, b.first_key, b.keys).add_(product(d_scores.transpose(1, 2), queries));
  }
  const auto put = [&](const at::Tensor& sum, int64_t first_head) {
    const at::Tensor to = key_heads_of(d_rows, first_head);
    to.copy_(sum.view(to.sizes()));
  };
  put(dk, heads);
  put(dv, heads + key_heads);
}

at::Tensor Attention::backward(const at::Tensor& d_out, const at::Tensor& qkv,
                               const Documents& documents, const AttentionKept& kept) const {
  LOCKSTEP_CHECK(fused || kept.probabilities.size() == documents.runs.size(),
                 kept.probabilities.size(), " of ", documents.runs.size());
  at::Tensor d_qkv = at::empty_like(qkv);
  for (size_t i = 0; i < documents.runs.size(); ++i)
    run_back(d_out, qkv, documents.runs[i], fused ? at::Tensor() : kept.probabilities[i], d_qkv);
  return d_qkv;
}

}  // namespace

at::Tensor attend(const Kernels& kernels, const AttentionShape& shape, const at::Tensor& qkv,
                  const Documents& documents, AttentionKept& kept) {
  return Attention(kernels, shape).forward(qkv, documents, kept);
}

at::Tensor attend_back(const Kernels& kernels, const AttentionShape& shape, const at::Tensor& d_out,
                       const at::Tensor& qkv, const Documents& documents,
                       const AttentionKept& kept) {
  return Attention(kernels, shape).backward(d_out, qkv, documents, kept);
}

}  // namespace lockstep::core
