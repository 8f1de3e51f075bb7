// The written-out kernels against LibTorch's autograd in fp64, and the properties that the
// arithmetic rests on.
#include "core/kernels/kernel_table.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/comm/join.h"
#include "core/model/block_stage.h"
#include "core/model/decoder.h"
#include "core/model/embedding_stage.h"

namespace lockstep::core {
namespace {

const Kernels& cpu_table = kernels_on(at::kCPU);

at::Tensor random_tensor(at::IntArrayRef shape, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::TensorOptions(at::kFloat));
}
double max_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

TEST(RmsNorm, ForwardAndBackwardMatchAutogradInFp64) {
  const at::Tensor x = random_tensor({7, 37}, 1), w = random_tensor({37}, 2);
  const at::Tensor dy = random_tensor({7, 37}, 3);
  at::Tensor x64 = x.to(at::kDouble).requires_grad_(), w64 = w.to(at::kDouble).requires_grad_();
  const at::Tensor y64 = x64 * (x64.pow(2).mean(-1, true) + 1e-5).rsqrt() * w64;
  const auto grads = torch::autograd::grad({y64}, {x64, w64}, {dy.to(at::kDouble)});
  at::Tensor scale, dw = at::zeros({37}, at::kFloat);
  EXPECT_LT(max_difference(cpu_table.add_rms_norm_(x, {}, w, 1e-5, scale), y64), 2e-6);
  const at::Tensor residual = random_tensor({7, 37}, 13);
  EXPECT_LT(max_difference(cpu_table.rms_norm_back(dy.clone(), x, w, scale, residual, dw),
                           grads[0] + residual),
            5e-6);
  EXPECT_LT(max_difference(dw, grads[1]), 1e-5);
}

// Those of LibTorch's sum and the norm of that; a row is of all magnitudes.
TEST(Norms, AResidualsSumHasTheBitsOfAdd) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    at::Tensor x = random_tensor({7, 301}, 1), residual = random_tensor({7, 301}, 2);
    for (const at::Tensor& t : {x, residual}) t[3].mul_(at::pow(10, at::linspace(-42, 37, 301)));
    x = x.to(dtype), residual = residual.to(dtype);
    const at::Tensor w = random_tensor({301}, 3).to(dtype), b = random_tensor({301}, 4).to(dtype);
    const at::Tensor sum = x.clone().add_(residual), of_rms = x.clone(), of_layer = x.clone();
    at::Tensor scale, plain_scale, stats, plain_stats;
    const at::Tensor rms = cpu_table.add_rms_norm_(of_rms, residual, w, 1e-5, scale);
    const at::Tensor layer = cpu_table.add_layer_norm_(of_layer, residual, w, b, 1e-5, stats);
    EXPECT_TRUE(at::equal(of_rms, sum)) << dtype;
    EXPECT_TRUE(at::equal(of_layer, sum)) << dtype;
    EXPECT_TRUE(at::equal(rms, cpu_table.add_rms_norm_(sum, {}, w, 1e-5, plain_scale))) << dtype;
    EXPECT_TRUE(at::equal(layer, cpu_table.add_layer_norm_(sum, {}, w, b, 1e-5, plain_stats)))
        << dtype;
    EXPECT_TRUE(at::equal(scale, plain_scale) && at::equal(stats, plain_stats)) << dtype;
  }
}

TEST(Swiglu, ForwardAndBackwardMatchAutogradInFp64) {
  const at::Tensor gate_up = random_tensor({5, 2 * 33}, 4) * 4, dy = random_tensor({5, 33}, 5);
  at::Tensor g64 = gate_up.to(at::kDouble).requires_grad_();
  const at::Tensor y64 = at::silu(g64.narrow(1, 0, 33)) * g64.narrow(1, 33, 33);
  const auto grads = torch::autograd::grad({y64}, {g64}, {dy.to(at::kDouble)});
  EXPECT_LT(max_difference(cpu_table.swiglu(gate_up), y64), 1e-5);
  EXPECT_LT(max_difference(cpu_table.swiglu_back(dy, gate_up.clone()), grads[0]), 1e-5);
}

TEST(Swiglu, LargeGatesSaturateWithoutNan) {
  const at::Tensor gate_up = at::tensor({-1e4f, 1e4f, 1.0f, 1.0f}).view({1, 4});
  const at::Tensor y = cpu_table.swiglu(gate_up);
  EXPECT_NEAR(y[0][0].item<float>(), 0.0f, 1e-30f);
  EXPECT_EQ(y[0][1].item<float>(), 1e4f);
}

TEST(RotateHeads, TurningBackRestoresAndKeepsLength) {
  const RotaryTable table = RotaryTable::create(16, 8, 10000.0);
  const at::Tensor x = random_tensor({32, 24}, 6);
  at::Tensor turned = x.clone();
  const at::Tensor positions = at::arange(32, at::kLong) * 5 % 16;
  cpu_table.rotate_rows(turned, table, positions, 3, 8, 1.0f);
  EXPECT_GT(max_difference(turned, x), 0.1);
  EXPECT_LT(max_difference(turned.norm(), x.norm()), 1e-4);
  EXPECT_TRUE(at::equal(turned[16], x[16])) << "position 0 does not turn";
  at::Tensor ninth = x.narrow(0, 9, 1).clone();
  cpu_table.rotate_rows(ninth, table, positions.narrow(0, 9, 1), 3, 8, 1.0f);
  EXPECT_TRUE(at::equal(ninth[0], turned[9]));
  cpu_table.rotate_rows(turned, table, positions, 3, 8, -1.0f);
  EXPECT_LT(max_difference(turned, x), 1e-6);
}

// The sines of position t of all pairs.
at::Tensor sines(const layout::RopeScaling& scaling, int64_t t, int64_t seq_len = 64) {
  return RotaryTable::create(seq_len, 24, 10000.0, scaling).sin_TH[t];
}

TEST(RotaryTable, ALinearOneIsThatOfEarlierPositions) {
  const layout::RopeScaling linear{.type = layout::RopeType::kLinear, .factor = 4};
  EXPECT_TRUE(at::equal(sines(linear, 40), sines({}, 10)));
}

TEST(RotaryTable, ADynamicOneChangesBeyondItsLengthAlone) {
  const layout::RopeScaling dynamic{
      .type = layout::RopeType::kDynamic, .factor = 4, .original_positions = 32};
  EXPECT_TRUE(at::equal(sines(dynamic, 9, 32), sines({}, 9, 32)));
  const at::Tensor longer = sines(dynamic, 9, 64), plain = sines({}, 9, 64);
  EXPECT_EQ(longer[0].item<float>(), plain[0].item<float>()) << "the fastest pair stays";
  // At twice the length the base grows by 5^(24/22), the slowest pair's frequency falls to a fifth.
  EXPECT_NEAR(plain[11].item<double>() / longer[11].item<double>(), 5.0, 1e-3);
}

TEST(RotaryTable, AYarnOneKeepsFastPairsAndStretchesSlowOnes) {
  layout::RopeScaling yarn{
      .type = layout::RopeType::kYarn, .factor = 4, .original_positions = 1024};
  const at::Tensor plain = sines({}, 1),
                   slow = sines({.type = layout::RopeType::kLinear, .factor = 4}, 1);
  const at::Tensor own = sines(yarn, 1);
  // Pair i turns 1024 / (2 pi 10000^(i/12)) times: 32 at 2.1 (bound 2), once at 6.6 (bound 7).
  EXPECT_TRUE(at::equal(own.narrow(0, 0, 3), plain.narrow(0, 0, 3)));
  EXPECT_TRUE(at::equal(own.narrow(0, 7, 5), slow.narrow(0, 7, 5)));
  EXPECT_TRUE((own.narrow(0, 3, 4) < plain.narrow(0, 3, 4)).all().item<bool>());
  EXPECT_TRUE((own.narrow(0, 3, 4) > slow.narrow(0, 3, 4)).all().item<bool>());
  yarn.truncate = false;
  EXPECT_NE(sines(yarn, 1)[3].item<float>(), own[3].item<float>());
  yarn.attention_factor = 1.25;
  yarn.truncate = true;
  EXPECT_LT(max_difference(sines(yarn, 1), own * 1.25), 1e-7);
}

// Every kernel that is spread over threads, on enough rows that it is.
std::vector<at::Tensor> everything_spread(at::ScalarType dtype) {
  const int64_t rows = 301, dim = 200;
  const auto random = [&](int64_t columns, uint64_t seed) {
    return random_tensor({rows, columns}, seed).to(dtype);
  };
  const at::Tensor x = random(dim, 1), w = random_tensor({dim}, 2).to(dtype);
  const at::Tensor gate_up = random(2 * dim, 4), residual = random(dim, 5);
  at::Tensor scale, scale2, stats, stats2, head_scale, rotated = random(dim, 6),
                                                       heads = at::zeros_like(x);
  at::Tensor dw = at::zeros({dim}, at::kFloat), dw2 = at::zeros({dim}, at::kFloat);
  at::Tensor db = at::zeros({dim}, at::kFloat), dh = at::zeros({20}, at::kFloat);
  const at::Tensor columns = at::zeros({7}, at::kFloat);
  at::Tensor x2 = random(dim, 8);
  std::vector<at::Tensor> all{cpu_table.add_rms_norm_(x, {}, w, 1e-5, scale),
                              cpu_table.add_rms_norm_(x2, x, w, 1e-5, scale2),
                              cpu_table.add_layer_norm_(x, {}, w, w, 1e-5, stats),
                              cpu_table.add_layer_norm_(x2, x, w, w, 1e-5, stats2), x2};
  all.push_back(cpu_table.rms_norm_back(random(dim, 3), x, w, scale, residual, dw));
  all.push_back(cpu_table.layer_norm_back(random(dim, 3), x, w, stats, residual, dw2, db));
  at::Tensor d_heads = random(dim, 7);
  const at::Tensor head_w = w.narrow(0, 0, 20).contiguous();
  cpu_table.head_norm(x, head_w, heads, head_scale, 40, 5, 1e-5);
  cpu_table.head_norm_back(d_heads, x, head_w, head_scale, dh, 40, 5);
  cpu_table.rotate_rows(rotated, RotaryTable::create(43, 20, 1e4), at::arange(rows, at::kLong) % 43,
                        9, 20, 1.0f);
  all.push_back(cpu_table.swiglu_back(cpu_table.swiglu(gate_up), gate_up.clone()));
  all.push_back(cpu_table.geglu_back(cpu_table.geglu(gate_up), gate_up.clone()));
  at::Tensor capped = residual.clone(), d_capped = x.clone();
  cpu_table.soft_cap(capped, 0.5f, 2.0f);
  cpu_table.soft_cap_back(capped, d_capped, 0.5f, 2.0f);
  all.push_back(capped);
  all.push_back(d_capped);
  all.push_back(cpu_table.gelu_new_back(cpu_table.gelu_new(gate_up), gate_up.clone()));
  cpu_table.add_columns(columns, gate_up, 9);
  for (const at::Tensor& t : {dw, dw2, db, d_heads, heads, dh, rotated, columns}) all.push_back(t);
  return all;
}

TEST(CpuKernels, ThreadsDoNotChangeTheBits) {
  const int before = at::get_num_threads();
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    at::set_num_threads(1);
    const std::vector<at::Tensor> one = everything_spread(dtype);
    for (int threads : {2, 5}) {
      at::set_num_threads(threads);
      const std::vector<at::Tensor> more = everything_spread(dtype);
      for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], more[i])) << i;
    }
  }
  at::set_num_threads(before);
}

// A whole unit of one rank, for stages that write gradients.
struct OneUnit {
  explicit OneUnit(layout::UnitSpec unit_spec, at::ScalarType compute)
      : spec(std::move(unit_spec)) {
    strategy.bf16 = compute == at::kBFloat16;
    membership = std::make_unique<Membership>(std::move(join({})).value());
    unit = std::make_unique<Unit>(spec, strategy, membership->groups(), pools);
  }
  at::Tensor folded() {
    unit->grads.start(std::make_shared<layout::ExchangePlan>(
        layout::ExchangePlan::create(strategy, /*round=*/0, /*rank=*/0)));
    EXPECT_TRUE(unit->grads.finish().ok());
    return unit->grads.folded();
  }
  layout::UnitSpec spec;
  Strategy strategy;
  Pools pools;
  std::unique_ptr<Membership> membership;
  std::unique_ptr<Unit> unit;
};

// A token seen 512 times in a slot: bf16 accumulation was 12 % off here.
TEST(EmbeddingStage, RepeatedTokenGradientIsRoundedOnce) {
  OneUnit one({"embed", {{"w", {4, 8}, 0.02}}}, at::kBFloat16);
  SlotInput slot{at::ones({1, 512}, at::kLong), at::ones({1, 512}, at::kLong), 1.0};
  const at::Tensor dy = random_tensor({512, 8}, 8).to(at::kBFloat16);
  EmbeddingStage stage(false, 1.0, Dropout(0, 0, "embed"));
  std::vector<UnitPart> units{{*one.unit, 0, one.spec}};
  stage.backward(units, dy, slot);
  const at::Tensor exact = dy.to(at::kDouble).sum(0);
  const at::Tensor got = one.folded().narrow(0, 8, 8);
  EXPECT_LT(((got.to(at::kDouble) - exact) / exact.abs().max()).abs().max().item<double>(),
            1.0 / 256);
  EXPECT_EQ(max_difference(got, exact.to(at::kBFloat16)), 0.0) << "more than one rounding";
}

TEST(Decoder, InitialValuesDoNotDependOnTheCut) {
  const layout::ParamSpec param{"p", {100, 100}, 0.02};
  const at::Tensor whole = at::empty({10000}, at::kFloat), parts = at::empty_like(whole);
  initialize_parameter(param, 42, 0, whole);
  for (int64_t at = 0; at < 10000; at += 777)
    initialize_parameter(param, 42, at, parts.narrow(0, at, std::min<int64_t>(777, 10000 - at)));
  EXPECT_TRUE(at::equal(whole, parts));
  EXPECT_NEAR(whole.mean().item<double>(), 0, 0.001);
  EXPECT_NEAR(whole.std().item<double>(), 0.02, 0.001);
}

}  // namespace
}  // namespace lockstep::core
