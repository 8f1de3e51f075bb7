// A router's choice, and the loss that spreads rows over experts.
#include "core/model/experts.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/kernels/expert_kernels.h"
#include "core/kernels/kernel_table.h"
#include "core/model/router_balance.h"
#include "tests/unit/core/whole_model.h"

namespace lockstep::core {
namespace {

struct Choice {
  std::vector<float> probabilities, weights;
  std::vector<int64_t> experts;
};
Choice choice_of(const at::Tensor& logits, const RouterShape& shape) {
  const auto rows = static_cast<size_t>(logits.size(0));
  Choice c;
  c.probabilities.resize(rows * static_cast<size_t>(shape.experts));
  c.weights.resize(rows * static_cast<size_t>(shape.chosen));
  c.experts.resize(c.weights.size());
  route<OnCpu>(logits.data_ptr<float>(), logits.size(0), shape, c.probabilities.data(),
               c.experts.data(), c.weights.data());
  return c;
}

TEST(Route, TheLikeliestComeFirstAndOfEqualOnesTheFirst) {
  const at::Tensor logits =
      at::tensor({1.0f, 3.0f, 2.0f, 3.0f, -1.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f});
  const Choice c = choice_of(logits.view({2, 5}), {5, 3, false});
  EXPECT_EQ(c.experts, (std::vector<int64_t>{1, 3, 2, 0, 1, 2}));
  EXPECT_EQ(c.weights[0], c.probabilities[1]);
  EXPECT_NEAR(c.weights[3], 0.2, 1e-6);
  const Choice normed = choice_of(logits.view({2, 5}), {5, 3, true});
  EXPECT_NEAR(normed.weights[0] + normed.weights[1] + normed.weights[2], 1.0, 1e-6);
}

TEST(Route, BackwardMatchesAutogradInFp64) {
  for (const bool normed : {false, true}) {
    const RouterShape shape{300, 4, normed};  // more experts than a run of a kernel
    const at::Tensor logits = random_tensor({7, 300}, 1), dw = random_tensor({7, 4}, 2);
    const at::Tensor dp = random_tensor({300}, 3);
    const Choice c = choice_of(logits, shape);
    at::Tensor l64 = leaf(logits);
    const at::Tensor p = at::softmax(l64, -1);
    at::Tensor w = std::get<0>(at::topk(p, 4));
    if (normed) w = w / w.sum(-1, true);
    const at::Tensor sum = (w * dw.to(at::kDouble)).sum() + (p * dp.to(at::kDouble)).sum();
    const auto grads = torch::autograd::grad({sum}, {l64});
    const at::Tensor d = at::empty_like(logits);
    route_backward<OnCpu>(c.probabilities.data(), c.experts.data(), c.weights.data(),
                          dw.data_ptr<float>(), dp.data_ptr<float>(), 7, shape,
                          d.data_ptr<float>());
    EXPECT_LT(max_difference(d, grads[0]), 1e-6) << normed;
    for (size_t i = 0; i < c.weights.size(); ++i)
      EXPECT_NEAR(c.weights[i], w.flatten()[static_cast<int64_t>(i)].item<double>(), 1e-6);
  }
}

// One of the experts has no rows: its gradient is zeros, whatever lay in the memory before.
TEST(Experts, OneWithoutRowsHasAGradientOfZeros) {
  layout::DecoderShape shape = experts_shape();
  shape.experts_per_token = 1;
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    WholeModel model(shape, options_of(compute));
    const UnitPart& block = model.parts[1];
    const layout::UnitSpec& unit = block.spec();
    const int router = unit.find(layout::Role::kRouter), gate = unit.find(layout::Role::kGate);
    // A row's sum decides: expert 0 or, where it is negative, expert 4.
    at::Tensor weight = block.weight(router);
    weight.zero_();
    weight[0].fill_(1);
    weight[4].fill_(-1);
    for (int i = gate; i < gate + 3 * 5; ++i) block.grad(i).fill_(7);
    const Experts experts(shape, unit);
    const at::Tensor h = random_tensor({20, shape.dim}, 3).to(compute);
    const at::Tensor dy = random_tensor({20, shape.dim}, 4).to(compute);
    Experts::Kept kept{h, {}, {}, experts.route(block, h)};
    EXPECT_EQ(kept.routing.first[4] - kept.routing.first[1], 0);
    kept.inner_P2F = experts.inner(block, h, kept.routing);
    kept.s_PF = kernels_on(h).swiglu(kept.inner_P2F);
    experts.backward(block, dy, kept, {});
    for (const int e : {1, 2, 3})
      for (const int i : {gate + 2 * e, gate + 2 * e + 1, gate + 10 + e})
        EXPECT_TRUE((block.grad(i) == 0).all().item<bool>())
            << unit.params[static_cast<size_t>(i)].name;
    EXPECT_GT(block.grad(gate).abs().max().item<double>(), 0.0);
    EXPECT_GT(block.grad(gate + 14).abs().max().item<double>(), 0.0);
  }
}

TEST(Experts, ThreadsDoNotChangeTheBits) {
  const layout::DecoderShape shape = experts_shape();
  const at::Tensor ids = (at::arange(4 * 300, at::kLong) * 7 % 30).view({4, 300});
  const SlotInput slot{ids, ids, 1.0};
  const auto bits = [&](int threads) {
    WholeModel model(shape, options_of(at::kBFloat16, 300));
    at::set_num_threads(threads);
    const auto gradients = model.gradients(slot);
    at::set_num_threads(1);
    return gradients;
  };
  const auto [loss, gradient] = bits(1);
  const auto [loss3, gradient3] = bits(3);
  EXPECT_EQ(loss, loss3);
  EXPECT_TRUE(at::equal(gradient, gradient3));
}

// Rows spread evenly cost the coefficient times those chosen of a row; all on one expert more.
TEST(RouterBalance, IsSmallestWhereRowsAreSpreadEvenly) {
  const auto loss_of = [](const at::Tensor& probabilities, std::vector<int64_t> first) {
    RouterBalance balance(0.5, 2, 4);
    Routing routing;
    routing.probabilities_RE = probabilities;
    routing.first = std::move(first);
    balance.record(0, routing);
    balance.record(1, routing);
    return balance.close(1.0);
  };
  const at::Tensor even = at::full({8, 4}, 0.25);
  EXPECT_NEAR(loss_of(even, {0, 4, 8, 12, 16}), 0.5 * 2, 1e-12);
  at::Tensor one = at::zeros({8, 4});
  one.narrow(1, 0, 1).fill_(1);
  EXPECT_NEAR(loss_of(one, {0, 8, 16, 16, 16}), 0.5 * 4, 1e-12);
}

}  // namespace
}  // namespace lockstep::core
