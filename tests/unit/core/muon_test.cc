// Muon: its kernels against LibTorch's operations, its iteration against one in fp64, and training
// under any setting.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fstream>
#include <set>

#include "core/kernels/matmul.h"
#include "core/kernels/muon_kernels.h"
#include "core/optim/newton_schulz.h"
#include "core/train/state_pieces.h"
#include "layout/muon_plan.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/core/strategy_grid.h"

namespace lockstep::core {
namespace {

constexpr double kLr = 0.02, kMomentum = 0.95, kDecay = 0.1;

at::Tensor random_matrix(at::IntArrayRef shape, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(shape);
}

void momentum(const MuonStep& step, const at::Tensor& grad, at::Tensor& m, at::Tensor* out) {
  muon_momentum<OnCpu>(step, grad.data_ptr<float>(), m.data_ptr<float>(),
                       out == nullptr ? nullptr : reinterpret_cast<Bf16*>(out->data_ptr()),
                       grad.numel());
}

// buf.lerp_(grad, 1 - momentum); grad.lerp(buf, momentum).bfloat16()
TEST(MuonKernels, MomentumAndDirectionAreLibTorchsBits) {
  for (const double by : {0.0, 0.3, 0.5, 0.9, kMomentum}) {
    const at::Tensor grad = random_matrix({48, 64}, 1);
    at::Tensor ours = random_matrix({48, 64}, 2), theirs = ours.clone();
    at::Tensor direction = at::empty({48, 64}, at::kBFloat16);
    momentum(MuonStep::create(kLr, by, kDecay, 1.0, 48, 64), grad, ours, &direction);
    theirs.lerp_(grad, 1.0 - by);
    EXPECT_TRUE(at::equal(ours, theirs)) << by;
    EXPECT_TRUE(at::equal(direction, grad.lerp(theirs, by).to(at::kBFloat16))) << by;
    at::Tensor alone = random_matrix({48, 64}, 2);
    momentum(MuonStep::create(kLr, by, kDecay, 1.0, 48, 64), grad, alone, nullptr);
    EXPECT_TRUE(at::equal(alone, ours)) << by;
  }
}

TEST(MuonKernels, TheGradientIsClippedFirst) {
  const at::Tensor grad = random_matrix({16, 16}, 1);
  at::Tensor clipped = at::zeros({16, 16}), plain = at::zeros({16, 16});
  momentum(MuonStep::create(kLr, kMomentum, kDecay, 0.25, 16, 16), grad, clipped, nullptr);
  momentum(MuonStep::create(kLr, kMomentum, kDecay, 1.0, 16, 16), grad * 0.25, plain, nullptr);
  EXPECT_TRUE(at::equal(clipped, plain));
}

// param.mul_(1 - lr * weight_decay); param.add_(update, alpha=-adjusted_lr)
TEST(MuonKernels, TheUpdateIsLibTorchsBits) {
  at::Tensor ours = random_matrix({48, 64}, 3), theirs = ours.clone();
  const at::Tensor update = random_matrix({48, 64}, 4).to(at::kBFloat16);
  muon_update<OnCpu>(MuonStep::create(kLr, kMomentum, kDecay, 1.0, 48, 64),
                     reinterpret_cast<const Bf16*>(update.data_ptr()), ours.data_ptr<float>(),
                     nullptr, ours.numel());
  theirs.mul_(1.0 - kLr * kDecay);
  theirs.add_(update, -kLr * 0.2 * std::sqrt(64.0));
  EXPECT_TRUE(at::equal(ours, theirs));
}

TEST(MuonKernels, TheSameBitsAtAnyCut) {
  constexpr int64_t kCount = 3 * 4096 + 5;
  const MuonStep step = MuonStep::create(kLr, kMomentum, kDecay, 0.7, 100, 123);
  const at::Tensor grad = random_matrix({kCount}, 1);
  at::Tensor whole_m = random_matrix({kCount}, 2), whole_w = random_matrix({kCount}, 3);
  at::Tensor cut_m = whole_m.clone(), cut_w = whole_w.clone();
  at::Tensor whole_out = at::empty({kCount}, at::kBFloat16), cut_out = at::empty_like(whole_out);
  const auto run = [&](at::Tensor& m, at::Tensor& out, at::Tensor& w, int64_t at, int64_t n) {
    Bf16* const direction = reinterpret_cast<Bf16*>(out.data_ptr()) + at;
    muon_momentum<OnCpu>(step, grad.data_ptr<float>() + at, m.data_ptr<float>() + at, direction, n);
    muon_update<OnCpu>(step, direction, w.data_ptr<float>() + at, nullptr, n);
  };
  run(whole_m, whole_out, whole_w, 0, kCount);
  for (int64_t at = 0; at < kCount; at += 1001)
    run(cut_m, cut_out, cut_w, at, std::min<int64_t>(1001, kCount - at));
  EXPECT_TRUE(at::equal(whole_m, cut_m) && at::equal(whole_w, cut_w));
  EXPECT_TRUE(at::equal(whole_out, cut_out));
}

at::Tensor sum_and_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                           double beta, double alpha) {
  at::Tensor out = sum.contiguous().clone();
  multiply_add(a, b, out, beta, alpha);
  return out;
}

// torch.optim.Muon's function, with the products of this CPU (matmul.h).
at::Tensor plain_newton_schulz(const at::Tensor& direction, at::ScalarType dtype) {
  at::Tensor x = direction.to(dtype);
  const bool tall = x.size(0) > x.size(1);
  if (tall) x = x.t();
  x.div_(x.norm().clamp(1e-7));
  for (int step = 0; step < 5; ++step) {
    const at::Tensor gram = product(x, x.t());
    const at::Tensor polynomial = sum_and_product(gram, gram, gram, -4.7750, 2.0315);
    x = sum_and_product(x, polynomial, x, 3.4445, 1.0);
  }
  return tall ? x.t() : x;
}

TEST(NewtonSchulz, GivesTheBitsOfThePlainIterationAndNearlyThoseOfFp64) {
  BufferPool pool;
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>(48, 48), {32, 128}, {128, 32}, {33, 70}, {71, 34}, {1, 64}}) {
    const at::Tensor direction = random_matrix({rows, cols}, 5).to(at::kBFloat16);
    at::Tensor x = direction.clone();
    orthogonalize(x, pool);
    EXPECT_TRUE(at::equal(x, plain_newton_schulz(direction, at::kBFloat16)))
        << rows << " x " << cols;
    const at::Tensor exact = plain_newton_schulz(direction, at::kDouble);
    const double off = ((x.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
    EXPECT_LT(off, 0.05) << rows << " x " << cols;
  }
}

// Nothing has no direction.
TEST(NewtonSchulz, AMatrixOfZerosStaysOne) {
  BufferPool pool;
  at::Tensor x = at::zeros({16, 32}, at::kBFloat16);
  orthogonalize(x, pool);
  EXPECT_TRUE(at::equal(x, at::zeros_like(x)));
}

TEST(NewtonSchulz, TheBitsDoNotDependOnWhereTheMatrixLies) {
  BufferPool pool;
  const at::Tensor direction = random_matrix({40, 72}, 6).to(at::kBFloat16);
  at::Tensor first = direction.clone();
  orthogonalize(first, pool);
  at::Tensor room = at::full({40 * 72 + 64}, 7.0, at::kBFloat16);
  for (const int64_t offset : {1, 8, 33}) {
    at::Tensor x = room.narrow(0, offset, 40 * 72).view({40, 72});
    x.copy_(direction);
    orthogonalize(x, pool);
    EXPECT_TRUE(at::equal(x, first)) << offset;
  }
}

void with_muon(Config& config) { config.optimizer.name = OptimizerKind::kMuon; }

TEST(Muon, EveryStrategyAndWorldSizeGivesTheSameBits) {
  check_settings(spreads_with_defaults(5), 4, with_muon);
}

TEST(Muon, ASampleOfAllCombinationsGivesTheSameBits) {
  check_settings(sample_of_settings(20261125, 30), 4, with_muon);
}

TEST(Muon, ExpertsGiveTheSameBits) {
  const test_support::TempDir folder;
  std::ofstream(folder / "config.json") << kExperts;
  std::vector<Setting> settings;
  for (ShardingStrategy strategy :
       {ShardingStrategy::kDdp, ShardingStrategy::kFullShard, ShardingStrategy::kHybrid})
    for (int w : {2, 3}) settings.push_back({.strategy = strategy, .world_size = w, .bf16 = true});
  check_settings(settings, 4, [&](Config& c) {
    with_muon(c);
    c.model.hf_assets_path = folder.path().string();
    c.model.init = InitialWeights::kRandom;
  });
}

TEST(Muon, ItIsNotAdamW) {
  const Setting setting{.strategy = ShardingStrategy::kSingle};
  Config muon = setting.config();
  with_muon(muon);
  const Curve one = train(setting, 3, muon), other = train(setting, 3, setting.config());
  EXPECT_EQ(one.steps[0], other.steps[0]);
  EXPECT_NE(one.steps[1], other.steps[1]);
}

// Matrices of blocks have a momentum; all else has Adam's moments; nothing has both.
TEST(Muon, StateIsOfTheOneOptimizerOrTheOther) {
  const Setting setting{.strategy = ShardingStrategy::kFullShard, .world_size = 2};
  Config config = setting.config();
  with_muon(config);
  train(setting, 1, config, at::kCPU, [](int, TrainingStep& model, const Groups&) {
    std::map<std::string, std::set<checkpoint::Kind>> kinds;
    for (const checkpoint::TensorPiece& piece : model_pieces(model.units()))
      kinds[piece.name].insert(piece.kind);
    using enum checkpoint::Kind;
    const std::set<checkpoint::Kind> muons{kParam, kMomentum}, adams{kParam, kAdamM, kAdamV};
    EXPECT_EQ(kinds.at("model.layers.0.self_attn.q_proj.weight"), muons);
    EXPECT_EQ(kinds.at("model.layers.2.mlp.down_proj.weight"), muons);
    EXPECT_EQ(kinds.at("model.embed_tokens.weight"), adams);
    EXPECT_EQ(kinds.at("model.layers.0.input_layernorm.weight"), adams);
    int64_t of_v = 0, of_muon = 0, held = 0;
    for (auto& unit : model.units()) {
      of_v += unit->state.adam_v_A.numel();
      held += unit->state.adam_m_S.numel();
      of_muon += layout::muon_elements(unit->spec, unit->state.held_segments());
    }
    EXPECT_GT(of_muon, 0);
    EXPECT_EQ(of_v, held - of_muon);
  });
}

}  // namespace
}  // namespace lockstep::core
