// What the families add to the decoder, against LibTorch's autograd in fp64.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/kernels/kernel_table.h"
#include "core/model/block_stage.h"
#include "tests/unit/core/whole_model.h"

namespace lockstep::core {
namespace {

const Kernels& cpu_kernels = kernels_on(at::kCPU);

TEST(LayerNorm, ForwardAndBackwardMatchAutogradInFp64) {
  for (int64_t dim : {37, 16, 5}) {
    const at::Tensor x = random_tensor({7, dim}, 1) * 3 + 5, w = random_tensor({dim}, 2);
    const at::Tensor b = random_tensor({dim}, 3), dy = random_tensor({7, dim}, 4);
    at::Tensor x64 = leaf(x), w64 = leaf(w), b64 = leaf(b);
    const at::Tensor y64 = at::layer_norm(x64, {dim}, w64, b64, 1e-5);
    const auto grads = torch::autograd::grad({y64}, {x64, w64, b64}, {dy.to(at::kDouble)});
    at::Tensor stats, dw = at::zeros({dim}, at::kFloat), db = at::zeros({dim}, at::kFloat);
    EXPECT_LT(max_difference(cpu_kernels.add_layer_norm_(x, {}, w, b, 1e-5, stats), y64), 5e-6);
    EXPECT_LT(max_difference(cpu_kernels.layer_norm_back(dy.clone(), x, w, stats,
                                                         b.expand_as(x).contiguous(), dw, db),
                             grads[0] + b64),
              5e-6);
    EXPECT_LT(max_difference(dw, grads[1]), 1e-5);
    EXPECT_LT(max_difference(db, grads[2]), 1e-5);
  }
}

TEST(Gelu, ForwardAndBackwardMatchAutogradInFp64) {
  const at::Tensor x = random_tensor({6, 41}, 5) * 3, dy = random_tensor({6, 41}, 6);
  at::Tensor x64 = leaf(x);
  const at::Tensor y64 = at::gelu(x64, "tanh");
  const auto grads = torch::autograd::grad({y64}, {x64}, {dy.to(at::kDouble)});
  EXPECT_LT(max_difference(cpu_kernels.gelu_new(x), y64), 3e-6);
  EXPECT_LT(max_difference(cpu_kernels.gelu_new_back(dy, x.clone()), grads[0]), 5e-6);
  const at::Tensor large = at::tensor({-1e4f, 1e4f, -90.0f, 40.0f});
  const at::Tensor limits = at::tensor({0.0f, 1.0f, 0.0f, 1.0f});
  EXPECT_LT(max_difference(cpu_kernels.gelu_new(large), large * limits), 1e-20);
  EXPECT_LT(max_difference(cpu_kernels.gelu_new_back(at::ones({4}), large.clone()), limits), 1e-20);
}

TEST(Geglu, ForwardAndBackwardMatchAutogradInFp64) {
  const at::Tensor x = random_tensor({6, 82}, 5) * 3, dy = random_tensor({6, 41}, 6);
  at::Tensor x64 = leaf(x);
  const at::Tensor y64 = at::gelu(x64.narrow(1, 0, 41), "tanh") * x64.narrow(1, 41, 41);
  const auto grads = torch::autograd::grad({y64}, {x64}, {dy.to(at::kDouble)});
  EXPECT_LT(max_difference(cpu_kernels.geglu(x), y64), 1e-5);
  EXPECT_LT(max_difference(cpu_kernels.geglu_back(dy, x.clone()), grads[0]), 2e-5);
}

TEST(SoftCap, ForwardAndBackwardMatchAutogradInFp64) {
  // Tiny ones keep their digits; huge ones are the cap.
  const at::Tensor x =
      at::cat({random_tensor({301}, 7) * 8, at::tensor({1e-6f, -2e4f, 3e4f, 0.0f})});
  const at::Tensor dy = random_tensor({305}, 8);
  at::Tensor x64 = leaf(x);
  const at::Tensor y64 = at::tanh(x64 * 0.25 / 3.0) * 3.0;
  const auto grads = torch::autograd::grad({y64}, {x64}, {dy.to(at::kDouble)});
  const at::Tensor y = x.clone(), dx = dy.clone();
  cpu_kernels.soft_cap(y, 0.25f, 3.0f);
  cpu_kernels.soft_cap_back(y, dx, 0.25f, 3.0f);
  EXPECT_LT(max_difference(y, y64), 1e-6);
  EXPECT_LT(max_difference(dx, grads[0]), 1e-6);
  EXPECT_NEAR(y[301].item<double>() / 2.5e-7, 1.0, 1e-5);
  EXPECT_EQ(y[302].item<float>(), -3.0f);
}

TEST(RmsNorm, AnOffsetIsAddedToTheWeight) {
  const at::Tensor x = random_tensor({7, 300}, 1), w = random_tensor({300}, 2) * 0.1;
  const at::Tensor dy = random_tensor({7, 300}, 3);
  at::Tensor scale, plain_scale, dw = at::zeros({300}, at::kFloat), plain_dw = at::zeros_like(dw);
  EXPECT_TRUE(at::equal(cpu_kernels.add_rms_norm_(x, {}, w, 1e-6, scale, 1.0f),
                        cpu_kernels.add_rms_norm_(x, {}, w + 1, 1e-6, plain_scale)));
  EXPECT_TRUE(at::equal(cpu_kernels.rms_norm_back(dy.clone(), x, w, scale, {}, dw, 1.0f),
                        cpu_kernels.rms_norm_back(dy.clone(), x, w + 1, scale, {}, plain_dw)));
  EXPECT_TRUE(at::equal(dw, plain_dw));
  // In bf16 a weight of 0.001 would be lost beside 1.
  const at::Tensor small = at::full({300}, 0.001).to(at::kBFloat16), ones = at::ones({1, 300});
  EXPECT_GT(
      cpu_kernels.add_rms_norm_(ones, {}, small.to(at::kFloat), 0, scale, 1.0f).min().item<float>(),
      1.0009f);
}

TEST(HeadNorm, TouchesItsColumnsAloneAndMatchesAutogradInFp64) {
  const int64_t rows = 5, heads = 3, e = 6;
  const at::Tensor x = random_tensor({rows, 30}, 7), w = random_tensor({e}, 8);
  const at::Tensor dy = random_tensor({rows, 30}, 9);
  const auto part = [&](const at::Tensor& t) {
    return t.narrow(1, 4, heads * e).reshape({rows, heads, e});
  };
  at::Tensor x64 = leaf(x), w64 = leaf(w);
  const at::Tensor p = part(x64);
  const at::Tensor y64 = p * (p.pow(2).mean(-1, true) + 1e-6).rsqrt() * w64;
  const auto grads = torch::autograd::grad({y64}, {x64, w64}, {part(dy.to(at::kDouble))});
  at::Tensor y = at::full_like(x, 7), scale, dx = dy.clone();
  at::Tensor dw = at::zeros({e}, at::kFloat);
  cpu_kernels.head_norm(x, w, y, scale, 4, heads, 1e-6);
  cpu_kernels.head_norm_back(dx, x, w, scale, dw, 4, heads);
  EXPECT_LT(max_difference(part(y), y64), 3e-6);
  EXPECT_LT(max_difference(part(dx), part(grads[0])), 1e-5);
  EXPECT_LT(max_difference(dw, grads[1]), 1e-5);
  for (const auto& [t, before] : {std::pair(y, at::full_like(x, 7)), std::pair(dx, dy)})
    EXPECT_TRUE(at::equal(t.narrow(1, 0, 4), before.narrow(1, 0, 4)) &&
                at::equal(t.narrow(1, 22, 8), before.narrow(1, 22, 8)));
}

TEST(AddColumns, SumsInFp32WhateverTheDtype) {
  const at::Tensor dy = at::ones({1000, 5}, at::kFloat) * 1.0078125;  // exact in bf16
  at::Tensor sum = at::zeros({2}, at::kFloat);
  cpu_kernels.add_columns(sum, dy.to(at::kBFloat16), 3);
  EXPECT_EQ(max_difference(sum, at::full({2}, 1007.8125)), 0.0);
}

TEST(Families, ALinearLayersGradientIsAutograds) {
  layout::DecoderShape shape = shape_with_everything(false);
  shape.family = ModelFamily::kLinear;
  WholeModel model(shape, options_of(at::kFloat));
  const at::Tensor x = random_tensor({18, 24}, 10), dy = random_tensor({18, 24}, 11);
  LinearStage stage(model.spec.units[1]);
  std::vector<UnitPart> units{model.parts[1]};
  const SlotInput slot = some_slot();
  const at::Tensor y = stage.forward(units, x, slot, true);
  const at::Tensor dx = stage.backward(units, dy, slot);
  const at::Tensor dw = units[0].grad(0).clone();
  at::Tensor x64 = leaf(x), w64 = leaf(units[0].weight(0));
  const at::Tensor y64 = at::linear(x64, w64);
  const auto grads = torch::autograd::grad({y64}, {x64, w64}, {dy.to(at::kDouble)});
  EXPECT_LT(max_difference(y, y64), 1e-5);
  EXPECT_LT(max_difference(dx, grads[0]), 1e-5);
  EXPECT_LT(max_difference(dw, grads[1]), 1e-4);
}

TEST(Families, Bf16StaysNearFp32) {
  for (const layout::DecoderShape& shape : families()) {
    WholeModel wide(shape, options_of(at::kFloat)), narrow(shape, options_of(at::kBFloat16));
    const auto [loss, gradient] = wide.gradients(some_slot());
    const auto [loss16, gradient16] = narrow.gradients(some_slot());
    EXPECT_NEAR(loss16 / loss, 1.0, 0.02);
    EXPECT_LT(((gradient16 - gradient).norm() / gradient.norm()).item<double>(), 0.05);
  }
}

TEST(Families, AWindowHidesWhatLiesFurtherBack) {
  auto shape = shape_with_everything(false);
  shape.n_layers = 1;
  shape.windows = {3};
  WholeModel model(shape, options_of(at::kFloat));
  const auto last_logits = [&](at::Tensor ids) {
    const at::Tensor x = model.schedule->forward_only({ids, ids, 1.0}).value();
    std::vector<UnitPart> head{model.parts.back()};
    return logits_of(model.spec, head, x.narrow(0, 8, 1)).clone();
  };
  const at::Tensor ids = at::arange(9, at::kLong).view({1, 9});
  const auto changed_at = [&](int64_t position) {
    at::Tensor other = ids.clone();
    other[0][position] = 20;
    return max_difference(last_logits(ids), last_logits(other));
  };
  EXPECT_EQ(changed_at(5), 0.0);  // four back: outside of 3
  EXPECT_GT(changed_at(6), 1e-4);
}

}  // namespace
}  // namespace lockstep::core
