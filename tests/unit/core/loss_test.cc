// The loss and the gradients that are summed inside a slot.
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/kernels/kernel_table.h"
#include "core/model/block_stage.h"
#include "core/model/head_stage.h"
#include "tests/unit/core/whole_model.h"

namespace lockstep::core {
namespace {

// Losses by row, and the logits' gradient times dy.
std::pair<std::vector<double>, at::Tensor> run_cross_entropy(const at::Tensor& logits,
                                                             const at::Tensor& labels,
                                                             const TokenLoss& loss, float dy) {
  at::Tensor used = logits.clone();
  const at::Tensor losses = at::full({logits.size(0)}, -1.0, at::kDouble);
  kernels_on(used).cross_entropy(used, labels, loss, dy, true, losses);
  const double* const first = losses.data_ptr<double>();
  return {{first, first + losses.numel()}, used};
}

TEST(CrossEntropy, MatchesAutogradInFp64WithZLossAndLabelSmoothing) {
  const at::Tensor labels = at::tensor({3, -100, 49, 0, 7, -100}, at::kLong);
  for (int64_t vocab : {50, 1000})
    for (const TokenLoss& loss :
         {TokenLoss{}, TokenLoss{0, 0.1}, TokenLoss{1e-2, 0}, TokenLoss{1e-2, 0.3}})
      for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        const at::Tensor logits = (random_tensor({6, vocab}, 7) * 3 + 2).to(dtype);
        at::Tensor l64 = leaf(logits);
        const at::Tensor valid = labels.ne(-100).to(at::kDouble);
        const at::Tensor loss64 = at::cross_entropy_loss(l64, labels, {}, at::Reduction::None, -100,
                                                         loss.label_smoothing) +
                                  loss.z_loss * at::logsumexp(l64, {1}).pow(2) * valid;
        const auto grads = torch::autograd::grad({loss64.sum()}, {l64});
        const auto [losses, gradient] = run_cross_entropy(logits, labels, loss, 0.25f);
        for (size_t r = 0; r < 6; ++r)
          EXPECT_NEAR(losses[r], loss64[static_cast<int64_t>(r)].item<double>(), 2e-5) << r;
        const double rounding = dtype == at::kFloat ? 1e-6 : 0.25 / 512 + 1e-6;
        EXPECT_LT(max_difference(gradient, grads[0] * 0.25), rounding) << vocab;
        EXPECT_TRUE((gradient[1] == 0).all().item<bool>());
      }
}

TEST(CrossEntropy, NotANumberComesThrough) {
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (int64_t place : {0, 1, 40}) {
      at::Tensor logits = at::ones({1, 50}, dtype);
      logits[0][place] = std::nan("");
      const at::Tensor label = at::tensor({3}, at::kLong);
      EXPECT_TRUE(std::isnan(run_cross_entropy(logits, label, {}, 1.0f).first[0]));
    }
}

TEST(HeadStage, TheReportedLossHasTheExtraTermsInTrainingAlone) {
  const layout::DecoderShape shape = shape_with_everything(false);
  DecoderOptions options = options_of(at::kFloat);
  WholeModel plain(shape, options);
  options.loss = {1e-2, 0.2};
  WholeModel extra(shape, options);
  const SlotInput slot = some_slot();
  const double cross_entropy = plain.loss_of(slot);
  EXPECT_NEAR(plain.gradients(slot).first, cross_entropy, 1e-9 * cross_entropy);
  EXPECT_EQ(extra.loss_of(slot), cross_entropy);
  EXPECT_GT(extra.gradients(slot).first, cross_entropy + 1e-2 * 18 * 2);
}

// The head's part of the weight gradient of a chunked head, from the head's own bf16 rows and
// logits, summed in fp64.
at::Tensor exact_head_gradient(const WholeModel& model, const at::Tensor& weight,
                               const at::Tensor& x, const SlotInput& slot) {
  const Norm norm(model.spec.shape, model.spec.units.back(), layout::Role::kNorm1,
                  layout::Role::kNorm1Bias);
  at::Tensor kept;
  const at::Tensor h = norm.forward(model.parts.back(), x, {}, kept);
  const at::Tensor labels = slot.labels_BT.reshape({-1});
  const at::Tensor d =
      run_cross_entropy(at::mm(h, weight.t()), labels, {}, static_cast<float>(slot.dy)).second;
  return at::mm(d.to(at::kDouble).t(), h.to(at::kDouble));
}

// Units in the last place of bf16 that `got` is off, at most; 0.5 is one correct rounding.
double bf16_roundings(const at::Tensor& got, const at::Tensor& exact) {
  const at::Tensor magnitude = exact.abs().clamp_min(1e-30).log2().floor();
  const at::Tensor ulp = at::pow(2.0, magnitude - 7);
  return ((got.to(at::kDouble) - exact).abs() / ulp).max().item<double>();
}

// No block; a vocabulary of which 64 rows are a chunk.
layout::DecoderShape shape_of_small_chunks(bool tied) {
  layout::DecoderShape shape = shape_with_everything(false);
  shape.dim = 16;
  shape.n_layers = 0;
  shape.windows.clear();
  shape.vocab_size = 131'072 + 64;
  shape.tied = tied;
  return shape;
}

// The gradient of a unit, after the backward of a slot.
at::Tensor gradient_of(const WholeModel& model, Unit& unit) {
  unit.grads.start(std::make_shared<layout::ExchangePlan>(
      layout::ExchangePlan::create(model.strategy, /*round=*/0, /*rank=*/0)));
  EXPECT_TRUE(unit.grads.finish().ok());
  return unit.grads.folded().clone();
}

// Rows without a label in three further chunks change nothing; the gradient of a slot of one chunk
// is not summed.
TEST(HeadStage, OneChunkAndSeveralGiveTheSameLossAndGradients) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const double rounding = dtype == at::kFloat ? 1e-5 : 0.02;
    double losses[2] = {};
    at::Tensor dx[2], gradients[2];
    for (const int64_t sequences : {1, 4}) {
      WholeModel model(shape_of_small_chunks(false), options_of(dtype, 64));
      const at::Tensor ids = (at::arange(sequences * 64, at::kLong) % 5).view({sequences, 64});
      at::Tensor labels = ids.clone();
      labels.narrow(0, 1, sequences - 1).fill_(-100);
      const at::Tensor x = model.parts[0].weight(0).index_select(0, ids.reshape({-1}));
      const size_t i = sequences > 1 ? 1 : 0;
      auto [loss, d] = model.stages.loss->run({{model.parts[1]}}, x, {ids, labels, 1.0 / 64}, true);
      losses[i] = loss;
      dx[i] = d.narrow(0, 0, 64);
      gradients[i] = gradient_of(model, *model.units[1]);
    }
    EXPECT_NEAR(losses[0], losses[1], rounding);
    EXPECT_LT(max_difference(dx[0], dx[1]), rounding * dx[0].abs().max().item<double>());
    EXPECT_LT(max_difference(gradients[0], gradients[1]),
              rounding * gradients[0].abs().max().item<double>());
  }
}

// Several chunks, untied and tied; the embedding rows of the tied one are seen 64 times each.
TEST(HeadStage, Bf16GradientOfAChunkedHeadIsRoundedOnce) {
  for (bool tied : {false, true}) {
    WholeModel model(shape_of_small_chunks(tied), options_of(at::kBFloat16, 128));
    const at::Tensor ids = (at::arange(256, at::kLong) % 4).view({2, 128});
    const SlotInput slot{ids, ids, 1.0 / 256};
    const at::Tensor embedding = model.parts[0].weight(0);
    const at::Tensor x = embedding.index_select(0, ids.reshape({-1}));
    const at::Tensor weight = tied ? embedding : model.parts[1].weight(1);
    at::Tensor exact = exact_head_gradient(model, weight, x, slot);
    at::Tensor dx;
    {
      std::vector<UnitPart> head{model.parts[1]};
      if (tied) head.push_back(model.parts[0]);
      dx = model.stages.loss->run(head, x, slot, true).dx;
    }
    std::vector<UnitPart> first{model.parts[0]};
    model.stages.stages[0]->backward(first, dx, slot);
    if (tied) exact.index_add_(0, ids.reshape({-1}), dx.to(at::kDouble));
    const int64_t offset = tied ? 0 : layout::kTileElements;  // after the norm
    const at::Tensor got = gradient_of(model, *model.units[tied ? 0 : 1])
                               .narrow(0, offset, exact.numel())
                               .view(exact.sizes());
    // Sums of positive and negative terms lose fp32 digits: half an ulp and a little.
    const at::Tensor large = exact.abs().gt(1e-3 * exact.abs().max().item<double>());
    EXPECT_LT(bf16_roundings(got.masked_select(large), exact.masked_select(large)), 0.51) << tied;
    EXPECT_LT(max_difference(got, exact), exact.abs().max().item<double>() / 256);
  }
}

}  // namespace
}  // namespace lockstep::core
