#include "core/kernels/cuda_attention.h"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>

#include "base/check.h"

namespace lockstep::core {
namespace {

struct Heads {
  at::Tensor q, k, v;
};

// Views of the projections of the run's documents, [count, length, heads, E].
Heads heads_of(const AttentionShape& s, const at::Tensor& qkv, const DocumentRun& run) {
  const at::Tensor all = qkv.narrow(0, run.first_row, run.count * run.length)
                             .view({run.count, run.length, -1, s.head_dim});
  return {all.narrow(2, 0, s.heads), all.narrow(2, s.heads, s.key_heads),
          all.narrow(2, s.heads + s.key_heads, s.key_heads)};
}
at::Tensor out_of(const AttentionShape& s, const at::Tensor& out, const DocumentRun& run) {
  return out.narrow(0, run.first_row, run.count * run.length)
      .view({run.count, run.length, s.heads, s.head_dim});
}

// Flash attention's: keys before the query's own, or no limit.
std::optional<int64_t> left_window(const AttentionShape& s) {
  return s.window > 0 ? std::optional(s.window - 1) : std::nullopt;
}

// How the flash kernel takes the slot's documents: those of one length as a batch [B, T, heads, E];
// several lengths as one row [R, heads, E] with the documents' bounds.
struct FlashForm {
  explicit FlashForm(const Documents& documents)
      : rows(documents.runs[0]), longest(documents.longest) {
    if (documents.runs.size() == 1) return;
    rows = {0, 1, documents.positions_R.size(0)};
    bounds = documents.bounds;
  }
  // A view by heads_of or out_of of `rows`.
  at::Tensor of(const at::Tensor& x) const { return bounds ? x.squeeze(0) : x; }

  DocumentRun rows;
  std::optional<at::Tensor> bounds;  // none: a batch
  int64_t longest;
};

}  // namespace

bool flash_applies(const AttentionShape& s, const at::Tensor& qkv) {
  return s.fused && s.soft_cap == 0 && qkv.scalar_type() == at::kBFloat16;
}

at::Tensor flash_attention(const AttentionShape& s, const at::Tensor& qkv,
                           const Documents& documents, AttentionKept& kept) {
  at::Tensor& out = kept.out_RD;
  LOCKSTEP_CHECK(s.head_dim % 8 == 0 && s.head_dim <= 256, "head_dim ", s.head_dim);
  const FlashForm form(documents);
  const Heads heads = heads_of(s, qkv, form.rows);
  std::tie(out, kept.log_sum, kept.random, kept.unused, std::ignore) =
      at::_flash_attention_forward(form.of(heads.q), form.of(heads.k), form.of(heads.v),
                                   form.bounds, form.bounds, form.longest, form.longest,
                                   /*dropout_p=*/0.0, /*is_causal=*/true,
                                   /*return_debug_mask=*/false, s.scale(), left_window(s),
                                   /*window_size_right=*/0);
  return out = out.reshape({qkv.size(0), s.heads * s.head_dim});
}

at::Tensor flash_attention_back(const AttentionShape& s, const at::Tensor& d_out,
                                const at::Tensor& qkv, const Documents& documents,
                                const AttentionKept& kept) {
  at::Tensor d_qkv = at::empty_like(qkv);
  const FlashForm form(documents);
  const Heads heads = heads_of(s, qkv, form.rows), d = heads_of(s, d_qkv, form.rows);
  const at::Tensor bounds = form.bounds.value_or(at::Tensor());
  auto [dq, dk, dv] = at::_flash_attention_backward(
      form.of(out_of(s, d_out, form.rows)), form.of(heads.q), form.of(heads.k), form.of(heads.v),
      form.of(out_of(s, kept.out_RD, form.rows)), kept.log_sum, bounds, bounds, form.longest,
      form.longest,
      /*dropout_p=*/0.0, /*is_causal=*/true, kept.random, kept.unused, s.scale(), left_window(s),
      /*window_size_right=*/0);
  form.of(d.q).copy_(dq);
  form.of(d.k).copy_(dk);
  form.of(d.v).copy_(dv);
  return d_qkv;
}

}  // namespace lockstep::core
