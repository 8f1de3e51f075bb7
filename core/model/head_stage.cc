#include "base/check.h"
#include "core/model/block_stage.h"
#include "core/model/kernels.h"
#include "core/sharding/add_kernels.h"

namespace lockstep::core {
namespace {

// Logits of one chunk take at most this much; the chunk size depends on the vocabulary alone.
constexpr int64_t kChunkLogitBytes = int64_t{32} << 20;

int64_t chunk_rows(int64_t vocab) {
  const int64_t rows = kChunkLogitBytes / (vocab * static_cast<int64_t>(sizeof(float)));
  return std::max<int64_t>(64, rows / 64 * 64);
}

// Adds dlogits^T x to the weight's gradient. In one chunk it lands in the exchange buffer, rounded
// once; in several, or tied, the parts are added in fp32.
void add_weight_grad(const UnitPart& unit, int param, bool alone, const at::Tensor& d_logits,
                     const at::Tensor& x) {
  if (alone) {
    at::Tensor out = unit.grad(param);
    at::mm_out(out, d_logits.t(), x);
    return;
  }
  at::Tensor sum = unit.grad_sum(param);
  if (x.scalar_type() == at::kFloat) {
    sum.addmm_(d_logits.t(), x);
  } else {
    sum.addmm_(d_logits.t().to(at::kFloat), x.to(at::kFloat));
  }
}

}  // namespace

HeadStage::HeadStage(int unit, int embedding_unit, const model_spec::ModelSpec& spec)
    : units_{unit},
      shape_(spec.shape),
      norm_(spec.units.back(), model_spec::Role::kNorm1, model_spec::Role::kNorm1Bias,
            spec.shape.norm_eps),
      weight_param_(spec.shape.tied ? 0 : spec.units.back().find(model_spec::Role::kHead)) {
  if (shape_.tied) units_.push_back(embedding_unit);
}

LossStage::Output HeadStage::run(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                                 bool want_gradients) {
  const UnitPart& own = units[0];
  const UnitPart& weight_unit = shape_.tied ? units[1] : own;
  const at::Tensor& weight_VD = weight_unit.weight(weight_param_);
  at::Tensor kept;
  const at::Tensor h_RD = norm_.forward(own, x, kept);
  const at::Tensor labels = slot.labels_BT.reshape({-1});
  LOCKSTEP_CHECK(labels.size(0) == x.size(0), labels.size(0), " ", x.size(0));

  Output out;
  const int64_t rows = x.size(0), step = chunk_rows(shape_.vocab_size);
  at::Tensor dh_RD = want_gradients ? at::empty_like(h_RD) : at::Tensor();
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t n = std::min(step, rows - r);
    const at::Tensor h = h_RD.narrow(0, r, n);
    at::Tensor logits = at::mm(h, weight_VD.t()).to(at::kFloat);
    cross_entropy(logits.data_ptr<float>(), labels.data_ptr<int64_t>() + r, n, shape_.vocab_size,
                  static_cast<float>(slot.dy), want_gradients, &out.loss.sum,
                  &out.loss.valid_tokens);
    if (!want_gradients) continue;
    const at::Tensor d_logits = logits.to(x.scalar_type());
    at::Tensor dh = dh_RD.narrow(0, r, n);
    at::mm_out(dh, d_logits, weight_VD);
    add_weight_grad(weight_unit, weight_param_, rows <= step && !shape_.tied, d_logits, h);
  }
  if (want_gradients) out.dx = norm_.backward(own, dh_RD, x, kept);
  return out;
}

}  // namespace lockstep::core
