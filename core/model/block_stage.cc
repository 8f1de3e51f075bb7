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

BlockStage::Heads BlockStage::heads_of(const at::Tensor& qkv, int64_t batch,
                                       int64_t seq_len) const {
  const int64_t h = shape_.n_heads, k = shape_.n_kv_heads, e = shape_.head_dim;
  const at::Tensor all = qkv.view({batch, seq_len, h + 2 * k, e}).transpose(1, 2);
  return {all.narrow(1, 0, h), repeat_heads(all.narrow(1, h, k), h / k),
          repeat_heads(all.narrow(1, h + k, k), h / k)};
}

at::Tensor BlockStage::forward(std::span<Unit*> units, const at::Tensor& x, const SlotInput& slot,
                               bool keep) {
  Unit& u = *units[0];
  const int64_t batch = slot.tokens_BT.size(0), seq_len = slot.tokens_BT.size(1);
  Saved s;
  s.x_RD = x;
  s.h1_RD = rms_norm(x, u.weight(kNorm1), shape_.norm_eps, s.scale1_R);
  s.qkv = at::mm(s.h1_RD, stacked_weight(u, kQ, 3).t());
  rotate_rows(s.qkv, *rotary_, seq_len, shape_.n_heads + shape_.n_kv_heads, shape_.head_dim, 1.0f);
  const Heads heads = heads_of(s.qkv, batch, seq_len);
  std::tie(s.attention_RHE, s.log_sum) = at::_scaled_dot_product_flash_attention_for_cpu(
      heads.q, heads.k, heads.v, 0.0, /*is_causal=*/true);
  const at::Tensor attention = s.attention_RHE.transpose(1, 2).reshape({x.size(0), -1});
  s.x2_RD = at::mm(attention, u.weight(kO).t()).add_(x);
  s.h2_RD = rms_norm(s.x2_RD, u.weight(kNorm2), shape_.norm_eps, s.scale2_R);
  s.gate_up_R2F = at::mm(s.h2_RD, stacked_weight(u, kGate, 2).t());
  s.s_RF = swiglu(s.gate_up_R2F);
  at::Tensor y = at::mm(s.s_RF, u.weight(kDown).t()).add_(s.x2_RD);
  if (keep) saved_ = std::move(s);
  return y;
}

// d(qkv) for dx2, the gradient of the attention branch's output; writes the output projection's
// gradient.
at::Tensor BlockStage::attention_backward(Unit& u, const at::Tensor& dx2, int64_t batch,
                                          int64_t seq_len) {
  const int64_t h = shape_.n_heads, k = shape_.n_kv_heads, e = shape_.head_dim;
  const at::Tensor attention = saved_.attention_RHE.transpose(1, 2).reshape({dx2.size(0), -1});
  stacked_weight_grad(u, kO, 1, dx2, attention);
  const at::Tensor d_out = at::mm(dx2, u.weight(kO)).view({batch, seq_len, h, e}).transpose(1, 2);
  const Heads heads = heads_of(saved_.qkv, batch, seq_len);
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      d_out, heads.q, heads.k, heads.v, saved_.attention_RHE, saved_.log_sum, 0.0,
      /*is_causal=*/true);
  at::Tensor d_qkv = at::empty_like(saved_.qkv);
  at::Tensor all = d_qkv.view({batch, seq_len, h + 2 * k, e});
  all.narrow(2, 0, h).copy_(dq.transpose(1, 2));
  all.narrow(2, h, k).copy_(sum_heads(dk, h / k));
  all.narrow(2, h + k, k).copy_(sum_heads(dv, h / k));
  rotate_rows(d_qkv, *rotary_, seq_len, h + k, e, -1.0f);
  return d_qkv;
}

at::Tensor BlockStage::backward(std::span<Unit*> units, const at::Tensor& dy,
                                const SlotInput& slot) {
  Unit& u = *units[0];
  const int64_t batch = slot.tokens_BT.size(0), seq_len = slot.tokens_BT.size(1);
  stacked_weight_grad(u, kDown, 1, dy, saved_.s_RF);
  const at::Tensor d_gate_up = swiglu_back(at::mm(dy, u.weight(kDown)), saved_.gate_up_R2F);
  stacked_weight_grad(u, kGate, 2, d_gate_up, saved_.h2_RD);
  const at::Tensor dh2 = at::mm(d_gate_up, stacked_weight(u, kGate, 2));
  at::Tensor dx2 =
      rms_norm_back(dh2, saved_.x2_RD, u.weight(kNorm2), saved_.scale2_R, u.grad_sum(kNorm2));
  dx2.add_(dy);
  const at::Tensor d_qkv = attention_backward(u, dx2, batch, seq_len);
  stacked_weight_grad(u, kQ, 3, d_qkv, saved_.h1_RD);
  const at::Tensor dh1 = at::mm(d_qkv, stacked_weight(u, kQ, 3));
  at::Tensor dx =
      rms_norm_back(dh1, saved_.x_RD, u.weight(kNorm1), saved_.scale1_R, u.grad_sum(kNorm1));
  dx.add_(dx2);
  saved_ = Saved{};
  return dx;
}

}  // namespace lockstep::core
