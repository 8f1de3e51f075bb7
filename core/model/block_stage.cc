#include "core/model/block_stage.h"

#include <ATen/ops/empty_like.h>

namespace lockstep::core {

using layout::Role;

BlockStage::BlockStage(int64_t layer, const layout::ModelSpec& spec, BlockTables tables,
                       bool recompute, double dropout, const LoraConfig& lora, uint64_t seed)
    : BlockStage(layer, spec.shape, spec.units[static_cast<size_t>(layer) + 1], std::move(tables),
                 recompute, dropout, seed) {
  if (!spec.adapted()) return;
  const layout::UnitSpec& unit = spec.units[static_cast<size_t>(layer) + 1];
  const layout::UnitSpec& adapters = spec.units[static_cast<size_t>(spec.adapter_unit(layer))];
  for (Linear* linear : {&qkv_, &o_}) linear->adapt(unit, adapters, lora, seed);
  for (auto* linear : {&inner_, &down_})
    if (*linear) (*linear)->adapt(unit, adapters, lora, seed);
}

BlockStage::BlockStage(int64_t layer, const layout::DecoderShape& shape, const layout::UnitSpec& u,
                       BlockTables tables, bool recompute, double dropout, uint64_t seed)
    : layer_(layer),
      shape_(shape),
      tables_(std::move(tables)),
      recompute_(recompute),
      norm1_(shape, u, Role::kNorm1, Role::kNorm1Bias),
      norm2_(shape, u, Role::kNorm2, Role::kNorm2Bias),
      qkv_(u, Role::kQ, shape.gpt2 ? 1 : 3, Role::kQBias, shape.gpt2),
      o_(u, Role::kO, 1, Role::kOBias, shape.gpt2),
      attention_dropout_(dropout, seed, u.name + "/attention"),
      feed_forward_dropout_(dropout, seed, u.name + "/feed_forward"),
      q_norm_(u.find(Role::kQNorm)),
      k_norm_(u.find(Role::kKNorm)) {
  if (shape.experts > 0) {
    experts_.emplace(shape, u);
  } else {
    inner_.emplace(u, shape.gpt2 ? Role::kUp : Role::kGate, shape.gpt2 ? 1 : 2,
                   shape.gpt2 ? Role::kUpBias : Role::kGateBias, shape.gpt2);
    down_.emplace(u, Role::kDown, 1, Role::kDownBias, shape.gpt2);
  }
  if (!shape.post_norms) return;
  post1_.emplace(shape, u, Role::kPostNorm1, Role::kNorm1Bias);
  post2_.emplace(shape, u, Role::kPostNorm2, Role::kNorm2Bias);
}

// Query, key and value heads of h1, normed and rotated as the family does.
void BlockStage::project_heads(UnitParts units, const SlotInput& slot, bool train, bool all,
                               Saved& s) const {
  const UnitPart& u = units[0];
  const int64_t h = shape_.n_heads, k = shape_.n_kv_heads, e = shape_.head_dim;
  s.qkv = qkv_.forward(units, s.h1_RD, train ? &slot : nullptr);
  if (!all) s.h1_RD.reset();
  if (q_norm_ >= 0) {
    s.raw_qkv = s.qkv;
    s.qkv = at::empty_like(s.raw_qkv).copy_(s.raw_qkv);
    const Kernels& kernels = kernels_on(s.qkv);
    const float offset = shape_.norm_offset();
    kernels.head_norm(s.raw_qkv, u.weight(q_norm_), s.qkv, s.q_scale_RH, 0, h, shape_.norm_eps,
                      offset);
    kernels.head_norm(s.raw_qkv, u.weight(k_norm_), s.qkv, s.k_scale_RK, h * e, k, shape_.norm_eps,
                      offset);
    if (!all) s.raw_qkv.reset();
  }
  if (tables_.rotary)
    kernels_on(s.qkv).rotate_rows(s.qkv, *tables_.rotary, slot.documents.positions_R, h + k, e,
                                  1.0f);
}

void BlockStage::run(UnitParts units, const SlotInput& slot, bool train, bool all, Saved& s) const {
  const UnitPart& u = units[0];
  const Kernels& kernels = kernels_on(s.x_RD);
  const SlotInput* const dropped = train ? &slot : nullptr;
  s.h1_RD = norm1_.forward(u, s.x_RD, {}, s.norm1);
  project_heads(units, slot, train, all, s);
  at::Tensor branch =
      slot.cache != nullptr
          ? slot.cache->attention(layer_, tables_.attention, s.qkv)
          : kernels.attention(tables_.attention, s.qkv, slot.documents, s.attention);
  if (!all) {
    s.qkv.reset();
    s.attention = {};
  }
  branch = o_.forward(units, branch, dropped);
  if (post1_) {
    const at::Tensor raw = branch;
    branch = post1_->forward(u, raw, {}, s.post1);
    if (all) s.o_RD = raw;
  }
  if (train) attention_dropout_.apply(branch, slot);
  s.x2_RD = std::move(branch);
  s.h2_RD = norm2_.forward(u, s.x2_RD, s.x_RD, s.norm2);
  if (experts_) {
    s.routing = experts_->route(u, s.h2_RD);
    s.inner = experts_->inner(u, s.h2_RD, s.routing);
  } else {
    s.inner = inner_->forward(units, s.h2_RD, dropped);
  }
  if (!all) s.h2_RD.reset();
  s.s_RF = shape_.gpt2    ? kernels.gelu_new(s.inner)
           : shape_.geglu ? kernels.geglu(s.inner)
                          : kernels.swiglu(s.inner);
  if (!all) s.inner.reset();
}

at::Tensor BlockStage::feed_forward_end(UnitParts units, const SlotInput& slot, bool train,
                                        bool all, Saved& s) const {
  at::Tensor y = experts_ ? experts_->outer(units[0], s.s_RF, s.routing)
                          : down_->forward(units, s.s_RF, train ? &slot : nullptr);
  if (!all) s.s_RF.reset();
  if (!post2_) return y;
  const at::Tensor raw = y;
  if (all) s.down_RD = raw;
  return post2_->forward(units[0], raw, {}, s.post2);
}

at::Tensor BlockStage::forward(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                               bool keep) {
  const bool all = keep && !recompute_;
  Saved s;
  s.x_RD = x;
  run(units, slot, keep, all, s);
  if (keep && tables_.balance) tables_.balance->record(layer_, s.routing);
  at::Tensor y = feed_forward_end(units, slot, keep, all, s);
  if (keep) feed_forward_dropout_.apply(y, slot);
  y.add_(s.x2_RD);
  if (all) {
    saved_ = std::move(s);
  } else if (keep) {
    saved_.x_RD = x;
  }
  return y;
}

at::Tensor BlockStage::branch_back(const UnitPart& unit, const at::Tensor& dy,
                                   const SlotInput& slot, const Dropout& dropout,
                                   const std::optional<Norm>& post, at::Tensor raw,
                                   const at::Tensor& kept) const {
  if (!post && !dropout.active()) return dy;
  at::Tensor branch = at::empty_like(dy).copy_(dy);
  dropout.apply(branch, slot);
  return post ? post->backward(unit, std::move(branch), raw, kept, {}) : branch;
}

// dh2 for the branch's gradient.
at::Tensor BlockStage::dense_back(UnitParts units, at::Tensor branch, const SlotInput& slot) {
  at::Tensor d = down_->backward(units, branch, std::move(saved_.s_RF), slot);
  branch.reset();
  at::Tensor inner = std::move(saved_.inner);
  const Kernels& kernels = kernels_on(d);
  d = shape_.gpt2    ? kernels.gelu_new_back(d, std::move(inner))
      : shape_.geglu ? kernels.geglu_back(d, std::move(inner))
                     : kernels.swiglu_back(d, std::move(inner));
  return inner_->backward(units, d, std::move(saved_.h2_RD), slot);
}

at::Tensor BlockStage::experts_back(const UnitPart& unit, at::Tensor branch) {
  const at::Tensor balance = tables_.balance ? tables_.balance->gradient_E() : at::Tensor();
  return experts_->backward(unit, std::move(branch),
                            {std::move(saved_.h2_RD), std::move(saved_.inner),
                             std::move(saved_.s_RF), std::move(saved_.routing)},
                            balance);
}

// dx2 for dy, the gradient of the block's output.
at::Tensor BlockStage::feed_forward_back(UnitParts units, const at::Tensor& dy,
                                         const SlotInput& slot) {
  at::Tensor branch = branch_back(units[0], dy, slot, feed_forward_dropout_, post2_,
                                  std::move(saved_.down_RD), saved_.post2);
  at::Tensor d = experts_ ? experts_back(units[0], std::move(branch))
                          : dense_back(units, std::move(branch), slot);
  d = norm2_.backward(units[0], std::move(d), saved_.x2_RD, saved_.norm2, dy);
  saved_.x2_RD.reset();
  return d;
}

// d(qkv projection's output) for dx2, the gradient of the attention branch's sum.
at::Tensor BlockStage::attention_back(UnitParts units, const at::Tensor& dx2,
                                      const SlotInput& slot) {
  at::Tensor branch = branch_back(units[0], dx2, slot, attention_dropout_, post1_,
                                  std::move(saved_.o_RD), saved_.post1);
  const at::Tensor d_out = o_.backward(units, branch, saved_.attention.out_RD, slot);
  branch.reset();
  at::Tensor d_qkv = kernels_on(d_out).attention_back(tables_.attention, d_out, saved_.qkv,
                                                      slot.documents, saved_.attention);
  saved_.qkv.reset();
  saved_.attention = {};
  return project_heads_back(units[0], std::move(d_qkv), slot.documents);
}

// Through rotation and norms, to what the projection gave; in place.
at::Tensor BlockStage::project_heads_back(const UnitPart& u, at::Tensor d_qkv,
                                          const Documents& documents) {
  const int64_t h = shape_.n_heads, k = shape_.n_kv_heads, e = shape_.head_dim;
  const Kernels& kernels = kernels_on(d_qkv);
  if (tables_.rotary)
    kernels.rotate_rows(d_qkv, *tables_.rotary, documents.positions_R, h + k, e, -1.0f);
  if (q_norm_ < 0) return d_qkv;
  kernels.head_norm_back(d_qkv, saved_.raw_qkv, u.weight(q_norm_), saved_.q_scale_RH,
                         u.grad_sum(q_norm_), 0, h, shape_.norm_offset());
  kernels.head_norm_back(d_qkv, saved_.raw_qkv, u.weight(k_norm_), saved_.k_scale_RK,
                         u.grad_sum(k_norm_), h * e, k, shape_.norm_offset());
  saved_.raw_qkv.reset();
  return d_qkv;
}

at::Tensor BlockStage::backward(UnitParts units, const at::Tensor& dy, const SlotInput& slot) {
  if (recompute_) {
    run(units, slot, /*train=*/true, /*all=*/true, saved_);
    if (post2_) feed_forward_end(units, slot, /*train=*/true, /*all=*/true, saved_);
  }
  const at::Tensor dx2 = feed_forward_back(units, dy, slot);
  at::Tensor d = attention_back(units, dx2, slot);
  d = qkv_.backward(units, d, std::move(saved_.h1_RD), slot);
  d = norm1_.backward(units[0], std::move(d), saved_.x_RD, saved_.norm1, dx2);
  saved_ = Saved{};
  return d;
}

at::Tensor LinearStage::forward(UnitParts units, const at::Tensor& x, const SlotInput&, bool keep) {
  if (keep) x_RD_ = x;
  return linear_.forward(units, x, nullptr);
}

at::Tensor LinearStage::backward(UnitParts units, const at::Tensor& dy, const SlotInput& slot) {
  return linear_.backward(units, dy, std::move(x_RD_), slot);
}

}  // namespace lockstep::core
