#include <numeric>

#include "core/device/runtime.h"
#include "core/kernels/cuda_tensors.h"
#include "core/kernels/element_type.h"
#include "core/kernels/matmul.h"
#include "core/kernels/parallel.h"
#include "core/model/head_stage.h"
#include "layout/stage_sizes.h"

namespace lockstep::core {
namespace {

constexpr int64_t kGrainLogits = 32768;  // worth a thread's while

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
  at::Tensor sum = unit.grad_sum(param);
  if constexpr (cuda::kBuilt)
    if (x.is_cuda()) return cuda::add_product(sum, d_logits.t(), x);
  if (x.scalar_type() == at::kFloat) {
    sum.addmm_(d_logits.t(), x);
  } else {
    sum.addmm_(d_logits.t().to(at::kFloat), x.to(at::kFloat));
  }
}

// The losses of a chunk's rows go to `losses`; its logits become their gradient.
void losses_of(const at::Tensor& logits, const at::Tensor& labels, const TokenLoss& loss, float dy,
               bool want_gradients, const at::Tensor& losses) {
  if constexpr (cuda::kBuilt)
    if (logits.is_cuda())
      return cuda::cross_entropy(logits, labels, loss.z_loss, loss.label_smoothing, dy,
                                 want_gradients, losses);
  const int64_t vocab = logits.size(1);
  const int64_t* const label = labels.data_ptr<int64_t>();
  double* const out = losses.data_ptr<double>();
  by_type(logits, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int64_t grain = std::max<int64_t>(1, kGrainLogits / vocab);
    parallel_ranges(logits.size(0), grain, [&](int64_t begin, int64_t end) {
      cross_entropy<T>(ptr<T>(logits) + begin * vocab, label + begin, end - begin, vocab, loss, dy,
                       want_gradients, out + begin);
    });
  });
}

}  // namespace

HeadStage::HeadStage(const layout::ModelSpec& spec, TokenLoss loss)
    : shape_(spec.shape),
      loss_(loss),
      norm_(spec.base().back(), layout::Role::kNorm1, layout::Role::kNorm1Bias,
            spec.shape.norm_eps),
      weight_param_(spec.shape.tied ? 0 : spec.base().back().find(layout::Role::kHead)) {}

LossStage::Output HeadStage::run(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                                 bool want_gradients) {
  const UnitPart& own = units[0];
  const UnitPart& weight_unit = shape_.tied ? units[1] : own;
  const at::Tensor& weight_VD = weight_unit.weight(weight_param_);
  at::Tensor kept;
  const at::Tensor h_RD = norm_.forward(own, x, kept);
  const at::Tensor labels = slot.labels_BT.reshape({-1});
  LOCKSTEP_CHECK(labels.size(0) == x.size(0), labels.size(0), " ", x.size(0));

  const int64_t rows = x.size(0), step = layout::head_chunk_rows(shape_.vocab_size);
  const at::Tensor losses = at::empty({rows}, x.options().dtype(at::kDouble));
  at::Tensor dh_RD = want_gradients ? at::empty_like(h_RD) : at::Tensor();
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t n = std::min(step, rows - r);
    const at::Tensor h = h_RD.narrow(0, r, n);
    const at::Tensor logits = product(h, weight_VD.t());
    losses_of(logits, labels.narrow(0, r, n), want_gradients ? loss_ : TokenLoss{},
              static_cast<float>(slot.dy), want_gradients, losses.narrow(0, r, n));
    if (!want_gradients) continue;
    at::Tensor dh = dh_RD.narrow(0, r, n);
    multiply(logits, weight_VD, dh);
    add_weight_grad(weight_unit, weight_param_, rows <= step && !shape_.tied, logits, h);
  }
  Output out;
  const at::Tensor host_losses = losses.cpu(), host_labels = labels.cpu();
  const double* const loss = host_losses.data_ptr<double>();
  const int64_t* const label = host_labels.data_ptr<int64_t>();
  out.loss.sum = std::accumulate(loss, loss + rows, 0.0);
  out.loss.valid_tokens = std::count_if(label, label + rows, [](int64_t l) { return l >= 0; });
  if (want_gradients) out.dx = norm_.backward(own, std::move(dh_RD), x, kept, {});
  return out;
}

}  // namespace lockstep::core
