#include "core/model/block_stage.h"

namespace lockstep::core {
namespace {

// [B, K, T, E] -> [B, H, T, E]: each key head serves H/K query heads.
at::Tensor repeat_heads(const at::Tensor& x, int64_t groups) {
  if (groups == 1) return x;
  const auto b = x.size(0), k = x.size(1), t = x.size(2), e = x.size(3);
  return x.unsqueeze(2).expand({b, k, groups, t, e}).reshape({b, k * groups, t, e});
}

// The gradient of repeat_heads: the group's sum, in fp32, rounded once; [B, H, T, E] -> [B, T, K,
// E].
at::Tensor sum_heads(const at::Tensor& d, int64_t groups) {
  if (groups == 1) return d.transpose(1, 2);
  const auto b = d.size(0), k = d.size(1) / groups, t = d.size(2), e = d.size(3);
  return d.to(at::kFloat).reshape({b, k, groups, t, e}).sum(2).to(d.scalar_type()).transpose(1, 2);
}

}  // namespace

using model_spec::Role;

BlockStage::BlockStage(int unit, const model_spec::ModelSpec& spec, AttentionTables tables)
    : BlockStage(unit, spec.shape, spec.units[static_cast<size_t>(unit)], std::move(tables)) {}

BlockStage::BlockStage(int unit, const model_spec::DecoderShape& shape,
                       const model_spec::UnitSpec& u, AttentionTables tables)
    : units_{unit},
      shape_(shape),
      tables_(std::move(tables)),
      norm1_(u, Role::kNorm1, Role::kNorm1Bias, shape.norm_eps),
      norm2_(u, Role::kNorm2, Role::kNorm2Bias, shape.norm_eps),
      qkv_(u, Role::kQ, shape.gpt2 ? 1 : 3, Role::kQBias, shape.gpt2),
      o_(u, Role::kO, 1, Role::kOBias, shape.gpt2),
      inner_(u, shape.gpt2 ? Role::kUp : Role::kGate, shape.gpt2 ? 1 : 2,
             shape.gpt2 ? Role::kUpBias : Role::kGateBias, shape.gpt2),
      down_(u, Role::kDown, 1, Role::kDownBias, shape.gpt2),
      q_norm_(u.find(Role::kQNorm)),
      k_norm_(u.find(Role::kKNorm)) {}

BlockStage::Heads BlockStage::heads_of(const at::Tensor& qkv, int64_t batch,
                                       int64_t seq_len) const {
  const int64_t h = shape_.n_heads, k = shape_.n_kv_heads, e = shape_.head_dim;
  const at::Tensor all = qkv.view({batch, seq_len, h + 2 * k, e}).transpose(1, 2);
  return {all.narrow(1, 0, h), repeat_heads(all.narrow(1, h, k), h / k),
          repeat_heads(all.narrow(1, h + k, k), h / k)};
}

// Query, key and value heads of h1, normed and rotated as the family does.
at::Tensor BlockStage::project_heads(const UnitPart& u, int64_t seq_len, Saved& s) const {
  const int64_t h = shape_.n_heads, k = shape_.n_kv_heads, e = shape_.head_dim;
  at::Tensor qkv = qkv_.forward(u, s.h1_RD);
  if (q_norm_ >= 0) {
    s.raw_qkv = qkv;
    qkv = at::empty_like(s.raw_qkv).copy_(s.raw_qkv);
    head_norm(s.raw_qkv, u.weight(q_norm_), qkv, s.q_scale_RH, 0, h, shape_.norm_eps);
    head_norm(s.raw_qkv, u.weight(k_norm_), qkv, s.k_scale_RK, h * e, k, shape_.norm_eps);
  }
  if (tables_.rotary) rotate_rows(qkv, *tables_.rotary, seq_len, h + k, e, 1.0f);
  return qkv;
}

at::Tensor BlockStage::forward(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                               bool keep) {
  const UnitPart& u = units[0];
  const int64_t batch = slot.tokens_BT.size(0), seq_len = slot.tokens_BT.size(1);
  Saved s;
  s.x_RD = x;
  s.h1_RD = norm1_.forward(u, x, s.norm1);
  s.qkv = project_heads(u, seq_len, s);
  const Heads heads = heads_of(s.qkv, batch, seq_len);
  std::tie(s.attention_RHE, s.log_sum) = at::_scaled_dot_product_flash_attention_for_cpu(
      heads.q, heads.k, heads.v, 0.0, /*is_causal=*/!tables_.mask_TT.defined(), mask());
  const at::Tensor attention = s.attention_RHE.transpose(1, 2).reshape({x.size(0), -1});
  s.x2_RD = o_.forward(u, attention).add_(x);
  s.h2_RD = norm2_.forward(u, s.x2_RD, s.norm2);
  s.inner = inner_.forward(u, s.h2_RD);
  s.s_RF = shape_.gpt2 ? gelu_new(s.inner) : swiglu(s.inner);
  at::Tensor y = down_.forward(u, s.s_RF).add_(s.x2_RD);
  if (keep) saved_ = std::move(s);
  return y;
}

// d(qkv) for dx2, the gradient of the attention branch's output; writes the output projection's
// gradient.
at::Tensor BlockStage::attention_backward(const UnitPart& u, const at::Tensor& dx2, int64_t batch,
                                          int64_t seq_len) {
  const int64_t h = shape_.n_heads, k = shape_.n_kv_heads, e = shape_.head_dim;
  const at::Tensor attention = saved_.attention_RHE.transpose(1, 2).reshape({dx2.size(0), -1});
  o_.parameters_back(u, dx2, attention);
  const at::Tensor d_out = o_.input_back(u, dx2).view({batch, seq_len, h, e}).transpose(1, 2);
  const Heads heads = heads_of(saved_.qkv, batch, seq_len);
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      d_out, heads.q, heads.k, heads.v, saved_.attention_RHE, saved_.log_sum, 0.0,
      /*is_causal=*/!tables_.mask_TT.defined(), mask());
  at::Tensor d_qkv = at::empty_like(saved_.qkv);
  at::Tensor all = d_qkv.view({batch, seq_len, h + 2 * k, e});
  all.narrow(2, 0, h).copy_(dq.transpose(1, 2));
  all.narrow(2, h, k).copy_(sum_heads(dk, h / k));
  all.narrow(2, h + k, k).copy_(sum_heads(dv, h / k));
  return project_heads_back(u, d_qkv, seq_len);
}

// Through rotation and norms, to what the projection gave.
at::Tensor BlockStage::project_heads_back(const UnitPart& u, at::Tensor d_qkv, int64_t seq_len) {
  const int64_t h = shape_.n_heads, k = shape_.n_kv_heads, e = shape_.head_dim;
  if (tables_.rotary) rotate_rows(d_qkv, *tables_.rotary, seq_len, h + k, e, -1.0f);
  if (q_norm_ < 0) return d_qkv;
  at::Tensor d_raw = at::empty_like(d_qkv).copy_(d_qkv);
  head_norm_back(d_qkv, saved_.raw_qkv, u.weight(q_norm_), saved_.q_scale_RH, d_raw,
                 u.grad_sum(q_norm_), 0, h);
  head_norm_back(d_qkv, saved_.raw_qkv, u.weight(k_norm_), saved_.k_scale_RK, d_raw,
                 u.grad_sum(k_norm_), h * e, k);
  return d_raw;
}

at::Tensor BlockStage::backward(UnitParts units, const at::Tensor& dy,
                                const SlotInput& slot) {
  const UnitPart& u = units[0];
  const int64_t batch = slot.tokens_BT.size(0), seq_len = slot.tokens_BT.size(1);
  down_.parameters_back(u, dy, saved_.s_RF);
  const at::Tensor ds = down_.input_back(u, dy);
  const at::Tensor d_inner =
      shape_.gpt2 ? gelu_new_back(ds, saved_.inner) : swiglu_back(ds, saved_.inner);
  inner_.parameters_back(u, d_inner, saved_.h2_RD);
  const at::Tensor dh2 = inner_.input_back(u, d_inner);
  at::Tensor dx2 = norm2_.backward(u, dh2, saved_.x2_RD, saved_.norm2);
  dx2.add_(dy);
  const at::Tensor d_qkv = attention_backward(u, dx2, batch, seq_len);
  qkv_.parameters_back(u, d_qkv, saved_.h1_RD);
  const at::Tensor dh1 = qkv_.input_back(u, d_qkv);
  at::Tensor dx = norm1_.backward(u, dh1, saved_.x_RD, saved_.norm1);
  dx.add_(dx2);
  saved_ = Saved{};
  return dx;
}

at::Tensor LinearStage::forward(UnitParts units, const at::Tensor& x, const SlotInput&,
                                bool keep) {
  if (keep) x_RD_ = x;
  return linear_.forward(units[0], x);
}

at::Tensor LinearStage::backward(UnitParts units, const at::Tensor& dy, const SlotInput&) {
  linear_.parameters_back(units[0], dy, x_RD_);
  x_RD_.reset();
  return linear_.input_back(units[0], dy);
}

}  // namespace lockstep::core
