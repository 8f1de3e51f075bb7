// What the families add to the decoder, against LibTorch's autograd in fp64.
#include <gtest/gtest.h>

#include <numeric>

#include "core/model/block_stage.h"
#include "core/model/decoder.h"
#include "core/model/tensor_kernels.h"
#include "core/sharding/schedule.h"

namespace lockstep::core {
namespace {

at::Tensor random_tensor(at::IntArrayRef shape, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::TensorOptions(at::kFloat));
}
double max_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}
at::Tensor leaf(const at::Tensor& t) { return t.to(at::kDouble).requires_grad_(); }

TEST(LayerNorm, ForwardAndBackwardMatchAutogradInFp64) {
  for (int64_t dim : {37, 16, 5}) {
    const at::Tensor x = random_tensor({7, dim}, 1) * 3 + 5, w = random_tensor({dim}, 2);
    const at::Tensor b = random_tensor({dim}, 3), dy = random_tensor({7, dim}, 4);
    at::Tensor x64 = leaf(x), w64 = leaf(w), b64 = leaf(b);
    const at::Tensor y64 = at::layer_norm(x64, {dim}, w64, b64, 1e-5);
    const auto grads = torch::autograd::grad({y64}, {x64, w64, b64}, {dy.to(at::kDouble)});
    at::Tensor stats, dw = at::zeros({dim}, at::kFloat), db = at::zeros({dim}, at::kFloat);
    EXPECT_LT(max_difference(layer_norm(x, w, b, 1e-5, stats), y64), 5e-6);
    EXPECT_LT(max_difference(layer_norm_back(dy, x, w, stats, dw, db), grads[0]), 5e-6);
    EXPECT_LT(max_difference(dw, grads[1]), 1e-5);
    EXPECT_LT(max_difference(db, grads[2]), 1e-5);
  }
}

TEST(Gelu, ForwardAndBackwardMatchAutogradInFp64) {
  const at::Tensor x = random_tensor({6, 41}, 5) * 3, dy = random_tensor({6, 41}, 6);
  at::Tensor x64 = leaf(x);
  const at::Tensor y64 = at::gelu(x64, "tanh");
  const auto grads = torch::autograd::grad({y64}, {x64}, {dy.to(at::kDouble)});
  EXPECT_LT(max_difference(gelu_new(x), y64), 3e-6);
  EXPECT_LT(max_difference(gelu_new_back(dy, x), grads[0]), 5e-6);
  const at::Tensor large = at::tensor({-1e4f, 1e4f, -90.0f, 40.0f});
  const at::Tensor limits = at::tensor({0.0f, 1.0f, 0.0f, 1.0f});
  EXPECT_LT(max_difference(gelu_new(large), large * limits), 1e-20);
  EXPECT_LT(max_difference(gelu_new_back(at::ones({4}), large), limits), 1e-20);
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
  at::Tensor y = at::full_like(x, 7), scale, dx = at::full_like(x, 7);
  at::Tensor dw = at::zeros({e}, at::kFloat);
  head_norm(x, w, y, scale, 4, heads, 1e-6);
  head_norm_back(dy, x, w, scale, dx, dw, 4, heads);
  EXPECT_LT(max_difference(part(y), y64), 3e-6);
  EXPECT_LT(max_difference(part(dx), part(grads[0])), 1e-5);
  EXPECT_LT(max_difference(dw, grads[1]), 1e-5);
  for (const at::Tensor& t : {y, dx})
    EXPECT_TRUE((t.narrow(1, 0, 4) == 7).all().item<bool>() &&
                (t.narrow(1, 22, 8) == 7).all().item<bool>());
}

TEST(AddColumns, SumsInFp32WhateverTheDtype) {
  const at::Tensor dy = at::ones({1000, 5}, at::kFloat) * 1.0078125;  // exact in bf16
  at::Tensor sum = at::zeros({2}, at::kFloat);
  add_columns(sum, dy.to(at::kBFloat16), 3);
  EXPECT_EQ(max_difference(sum, at::full({2}, 1007.8125)), 0.0);
}

// A whole model on one rank: its units, and the gradients of one slot.
struct WholeModel {
  WholeModel(const model_spec::DecoderShape& shape, int64_t seq_len, at::ScalarType compute)
      : spec(model_spec::create(shape)) {
    strategy.compute = compute;
    membership = std::make_unique<Membership>(std::move(join({})).value());
    uint64_t seed = 100;
    for (const model_spec::UnitSpec& unit : spec.units) {
      units.push_back(std::make_unique<Unit>(unit, strategy, membership->groups(), pool));
      parts.emplace_back(*units.back(), 0, unit);
      for (const Segment& s : units.back()->held_segments()) {
        const double std = unit.params[static_cast<size_t>(s.param)].shape.size() == 1 ? 0.3 : 0.15;
        units.back()
            ->master_S.narrow(0, s.range_offset, s.length)
            .copy_(random_tensor({s.length}, ++seed) * std);
      }
      units.back()->refresh_compute_copy();
    }
    stages = make_decoder(spec, seq_len, compute);
    schedule = std::make_unique<Schedule>(parts, stages, strategy, SlotMap{false, 1, 1}, 0);
  }
  // Loss, then every unit's gradient, one after the other.
  std::pair<double, at::Tensor> gradients(const SlotInput& slot) {
    const SlotLoss loss = schedule->train_slot(slot, 0).value();
    EXPECT_TRUE(schedule->finish_step().ok());
    std::vector<at::Tensor> all;
    for (auto& unit : units) all.push_back(unit->folded().clone());
    return {loss.sum, at::cat(all)};
  }
  double loss_of(const SlotInput& slot) { return schedule->evaluate_slot(slot).value().sum; }

  model_spec::ModelSpec spec;
  Strategy strategy;
  BufferPool pool;
  std::unique_ptr<Membership> membership;
  std::vector<std::unique_ptr<Unit>> units;
  std::vector<UnitPart> parts;
  StageSequence stages;
  std::unique_ptr<Schedule> schedule;
};

model_spec::DecoderShape shape_with_everything(bool gpt2) {
  model_spec::DecoderShape s;
  s.dim = 24;
  s.n_layers = 2;
  s.n_heads = 4;
  s.n_kv_heads = gpt2 ? 4 : 2;
  s.head_dim = gpt2 ? 6 : 8;
  s.ffn_dim = 20;
  s.vocab_size = 30;
  s.gpt2 = gpt2;
  s.learned_positions = gpt2 ? 12 : 0;
  s.qkv_bias = s.o_bias = s.mlp_bias = true;
  s.qk_norm = !gpt2;
  s.tied = gpt2;
  if (!gpt2) {
    s.rope_scaling = {4, 1, 4, 16};
    s.windows = {0, 3};
  }
  return s;
}

SlotInput some_slot() {
  const at::Tensor ids = (at::arange(2 * 9, at::kLong) * 7 % 30).view({2, 9});
  return {ids, at::roll(ids, -1, 1).contiguous(), 1.0};
}

// The whole written-out backward against differences of the forward: along the gradient the loss
// must fall as its norm says.
TEST(Families, TheGradientIsTheSlopeOfTheLoss) {
  for (bool gpt2 : {false, true}) {
    WholeModel model(shape_with_everything(gpt2), 9, at::kFloat);
    const SlotInput slot = some_slot();
    const auto [loss, gradient] = model.gradients(slot);
    EXPECT_NEAR(loss, model.loss_of(slot), 1e-4);
    for (size_t u = 0; u < model.units.size(); ++u) {
      const auto& unit = *model.units[u];
      int64_t offset = 0;
      for (size_t before = 0; before < u; ++before)
        offset += model.units[before]->layout().held_elements();
      for (const Segment& s : unit.held_segments()) {
        const auto& param = unit.spec().params[static_cast<size_t>(s.param)];
        at::Tensor weight = model.units[u]->master_S.narrow(0, s.range_offset, s.length);
        const at::Tensor g = gradient.narrow(0, offset + s.range_offset, s.length);
        const double norm = g.norm().item<double>();
        ASSERT_GT(norm, 1e-4) << param.name << " has no gradient";
        const double h = 2e-2 / norm;
        const at::Tensor kept = weight.clone();
        weight.add_(g, h / 2);
        const double above = model.loss_of(slot);
        weight.copy_(kept).sub_(g, h / 2);
        const double below = model.loss_of(slot);
        weight.copy_(kept);
        const double expected = h * norm * norm;  // beside the rounding of an fp32 loss near 60
        EXPECT_NEAR(above - below, expected, 0.01 * expected + 1e-5) << param.name;
      }
    }
  }
}

TEST(Families, ALinearLayersGradientIsAutograds) {
  model_spec::DecoderShape shape = shape_with_everything(false);
  shape.family = "linear";
  WholeModel model(shape, 9, at::kFloat);
  const at::Tensor x = random_tensor({18, 24}, 10), dy = random_tensor({18, 24}, 11);
  LinearStage stage(1, model.spec.units[1]);
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
  for (bool gpt2 : {false, true}) {
    const auto shape = shape_with_everything(gpt2);
    WholeModel wide(shape, 9, at::kFloat), narrow(shape, 9, at::kBFloat16);
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
  WholeModel model(shape, 9, at::kFloat);
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
