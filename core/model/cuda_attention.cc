#include <cmath>

#include "core/model/cuda_kernels.h"
#include "core/model/cuda_tensors.h"
#include "core/model/element_type.h"

namespace lockstep::core::cuda {
namespace {

struct Heads {
  at::Tensor q, k, v;
};

// Views [B, T, heads, E] of the projections.
Heads heads_of(const AttentionShape& s, const at::Tensor& qkv) {
  const at::Tensor all =
      qkv.view({-1, s.seq_len, s.heads + 2 * s.key_heads, s.head_dim});
  return {all.narrow(2, 0, s.heads), all.narrow(2, s.heads, s.key_heads),
          all.narrow(2, s.heads + s.key_heads, s.key_heads)};
}

// [B, T, heads, E] <-> [B*K, (heads/K)*T, E]: the heads that share a key head, one after the other.
at::Tensor stacked(const AttentionShape& s, const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0) * s.key_heads, -1, s.head_dim});
}
at::Tensor unstacked(const AttentionShape& s, const at::Tensor& stack) {
  return stack.view({stack.size(0) / s.key_heads, -1, s.seq_len, s.head_dim}).transpose(1, 2);
}

float scale_of(const AttentionShape& s) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
}

bool flash(const AttentionShape& s, const at::Tensor& qkv) {
  return s.fused && qkv.scalar_type() == at::kBFloat16;
}

// Flash attention's: keys before the query's own, or no limit.
std::optional<int64_t> left_window(const AttentionShape& s) {
  return s.window > 0 ? std::optional(s.window - 1) : std::nullopt;
}

at::Tensor plain(const AttentionShape& s, const Heads& heads, AttentionKept& kept) {
  at::Tensor& p = kept.probabilities;
  p = at::bmm(stacked(s, heads.q), stacked(s, heads.k).transpose(1, 2));
  by_type(p, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    cuda::masked_softmax(ptr<T>(p), p.size(0) * p.size(1), s.seq_len, s.window, scale_of(s));
  });
  return unstacked(s, at::bmm(p, stacked(s, heads.v)));
}

void plain_back(const AttentionShape& s, const at::Tensor& d_out, const Heads& heads,
                const AttentionKept& kept, Heads& d) {
  const at::Tensor& p = kept.probabilities;
  const at::Tensor d_stack = stacked(s, d_out);
  at::Tensor d_scores = at::bmm(d_stack, stacked(s, heads.v).transpose(1, 2));
  by_type(p, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    cuda::masked_softmax_backward(ptr<T>(p), ptr<T>(d_scores), p.size(0) * p.size(1), s.seq_len,
                                  s.window, scale_of(s));
  });
  d.q.copy_(unstacked(s, at::bmm(d_scores, stacked(s, heads.k))));
  d.k.copy_(unstacked(s, at::bmm(d_scores.transpose(1, 2), stacked(s, heads.q))));
  d.v.copy_(unstacked(s, at::bmm(p.transpose(1, 2), d_stack)));
}

}  // namespace

at::Tensor attention(const AttentionShape& s, const at::Tensor& qkv, AttentionKept& kept) {
  const Heads heads = heads_of(s, qkv);
  at::Tensor out;
  if (!flash(s, qkv)) {
    out = plain(s, heads, kept);
  } else {
    LOCKSTEP_CHECK(s.head_dim % 8 == 0 && s.head_dim <= 256, "head_dim ", s.head_dim);
    std::tie(out, kept.log_sum, kept.random, kept.unused, std::ignore) =
        at::_flash_attention_forward(heads.q, heads.k, heads.v, {}, {}, s.seq_len, s.seq_len,
                                     /*dropout_p=*/0.0, /*is_causal=*/true,
                                     /*return_debug_mask=*/false, scale_of(s), left_window(s),
                                     /*window_size_right=*/0);
  }
  return out.reshape({qkv.size(0), s.heads * s.head_dim});
}

at::Tensor attention_back(const AttentionShape& s, const at::Tensor& d_out, const at::Tensor& qkv,
                          const at::Tensor& out, const AttentionKept& kept) {
  const auto by_head = [&](const at::Tensor& x) {
    return x.view({-1, s.seq_len, s.heads, s.head_dim});
  };
  const Heads heads = heads_of(s, qkv);
  at::Tensor d_qkv = at::empty_like(qkv);
  Heads d = heads_of(s, d_qkv);
  if (!flash(s, qkv)) {
    plain_back(s, by_head(d_out), heads, kept, d);
    return d_qkv;
  }
  auto [dq, dk, dv] = at::_flash_attention_backward(
      by_head(d_out), heads.q, heads.k, heads.v, by_head(out), kept.log_sum, {}, {}, s.seq_len,
      s.seq_len, /*dropout_p=*/0.0, /*is_causal=*/true, kept.random, kept.unused, scale_of(s),
      left_window(s), /*window_size_right=*/0);
  d.q.copy_(dq);
  d.k.copy_(dk);
  d.v.copy_(dv);
  return d_qkv;
}

}  // namespace lockstep::core::cuda
