#include "core/model/head_stage.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <numeric>

#include "base/check.h"
#include "core/kernels/kernel_table.h"
#include "core/kernels/matmul.h"
#include "layout/stage_sizes.h"

namespace lockstep::core {
namespace {

// Adds dlogits^T x to the weight's gradient. In one chunk it lands in the exchange buffer, rounded
// once; in several, or tied, the parts are added in fp32.
void add_weight_grad(const UnitPart& unit, int param, bool alone, const at::Tensor& d_logits,
                     const at::Tensor& x) {
  if (unit.spec().frozen) return;
  if (alone) {
    at::Tensor out = unit.grad(param);
    multiply(d_logits.t(), x, out);
    return;
  }
  kernels_on(x).add_product(unit.grad_sum(param), d_logits.t(), x);
}

}  // namespace

HeadStage::HeadStage(const layout::ModelSpec& spec, TokenLoss loss,
                     std::shared_ptr<RouterBalance> balance)
    : shape_(spec.shape),
      loss_(loss),
      balance_(std::move(balance)),
      norm_(spec.shape, spec.base().back(), layout::Role::kNorm1, layout::Role::kNorm1Bias),
      weight_param_(spec.shape.tied ? 0 : spec.base().back().find(layout::Role::kHead)) {}

LossStage::Output HeadStage::run(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                                 bool want_gradients) {
  const UnitPart& own = units[0];
  const UnitPart& weight_unit = shape_.tied ? units[1] : own;
  const at::Tensor& weight_VD = weight_unit.weight(weight_param_);
  at::Tensor kept;
  const at::Tensor h_RD = norm_.forward(own, x, {}, kept);
  const at::Tensor labels = slot.labels_BT.reshape({-1});
  LOCKSTEP_CHECK(labels.size(0) == x.size(0), labels.size(0), " ", x.size(0));

  const Kernels& kernels = kernels_on(x);
  const float cap = static_cast<float>(shape_.logit_cap);
  const int64_t rows = x.size(0),
                step = layout::head_chunk_rows(kernels.work_sizes(), shape_.vocab_size,
                                               static_cast<int64_t>(x.element_size()));
  const at::Tensor losses = at::empty({rows}, x.options().dtype(at::kDouble));
  at::Tensor dh_RD = want_gradients ? at::empty_like(h_RD) : at::Tensor();
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t n = std::min(step, rows - r);
    const at::Tensor h = h_RD.narrow(0, r, n);
    const at::Tensor logits = product(h, weight_VD.t());
    at::Tensor capped;  // for the gradient
    if (cap > 0) {
      kernels.soft_cap(logits, 1.0f, cap);
      if (want_gradients) capped = at::empty_like(logits).copy_(logits);
    }
    kernels.cross_entropy(logits, labels.narrow(0, r, n), want_gradients ? loss_ : TokenLoss{},
                          static_cast<float>(slot.dy), want_gradients, losses.narrow(0, r, n));
    if (!want_gradients) continue;
    if (cap > 0) kernels.soft_cap_back(capped, logits, 1.0f, cap);
    capped.reset();
    at::Tensor dh = dh_RD.narrow(0, r, n);
    multiply(logits, weight_VD, dh);
    add_weight_grad(weight_unit, weight_param_, rows <= step && !shape_.tied, logits, h);
  }
  Output out;
  const at::Tensor host_losses = losses.cpu();
  const double* const loss = host_losses.data_ptr<double>();
  out.loss = std::accumulate(loss, loss + rows, 0.0);
  if (want_gradients && balance_) {
    const double valid = labels.ge(0).sum().item<double>();
    out.loss += valid * balance_->close(valid * slot.dy);
  }
  if (want_gradients) out.dx = norm_.backward(own, std::move(dh_RD), x, kept, {});
  return out;
}

}  // namespace lockstep::core
