// Folding and the optimizer: the same bits at any cut.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/kernels/adamw_kernels.h"
#include "core/kernels/add_kernels.h"
#include "core/optim/learning_rate.h"
#include "core/sharding/fold_tree.h"
#include "layout/model_spec.h"

namespace lockstep::core {
namespace {

constexpr int64_t kTile = layout::kTileElements;

at::Tensor random_vector(int64_t n, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn({n}, generator, at::TensorOptions(at::kFloat));
}

// The balanced tree, two sums at a time.
at::Tensor by_pairs(const std::vector<at::Tensor>& slots) {
  const size_t half = slots.size() == 1 ? 0 : std::bit_floor(slots.size() - 1);
  if (half == 0) return slots.front().to(at::kFloat);
  return by_pairs({slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(half)}) +
         by_pairs({slots.begin() + static_cast<std::ptrdiff_t>(half), slots.end()});
}

// The sum of V slots, pushed in rounds of W as W ranks would.
at::Tensor fold(const std::vector<at::Tensor>& slots, size_t w, Reduction reduction) {
  BufferPool sums;
  FoldTree tree(slots[0].numel(), reduction, sums);
  for (size_t s = 0; s < slots.size(); ++s) {
    tree.push(slots[s], {static_cast<int64_t>(s), 1});
    if ((s + 1) % w == 0 || s + 1 == slots.size()) tree.end_round();
  }
  return tree.result().clone();
}

// The same, with runs of `at_once` slots added where they lie, as groups of ranks would.
at::Tensor fold_in_groups(const std::vector<at::Tensor>& slots, int64_t at_once) {
  BufferPool pool;
  FoldTree group(slots[0].numel(), Reduction::kTree, pool),
      all(slots[0].numel(), Reduction::kTree, pool);
  const int64_t v = static_cast<int64_t>(slots.size());
  for (int64_t first = 0; first < v; first += at_once) {
    const SlotRun run{first, std::min(at_once, v - first)};
    for (int64_t s = first; s < run.end(); ++s) group.push(slots[static_cast<size_t>(s)], {s, 1});
    group.end_round();
    std::vector<at::Tensor> sums = group.take_partials();
    const std::vector<SlotRun> nodes = subtrees_of(run);
    EXPECT_EQ(sums.size(), nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) all.push(sums[i], nodes[i]);
    all.end_round();
    group.give_back(std::move(sums));
  }
  return all.result().clone();
}

TEST(FoldTree, AnyWorldSizeGivesTheSameBits) {
  for (size_t v : {1, 2, 3, 4, 5, 6, 7, 8, 13, 19}) {
    std::vector<at::Tensor> slots;
    for (size_t s = 0; s < v; ++s) slots.push_back(random_vector(1000, s));
    const at::Tensor one = by_pairs(slots);
    for (size_t w = 1; w <= v + 1; ++w)
      EXPECT_TRUE(at::equal(one, fold(slots, w, Reduction::kTree))) << v << " " << w;
    for (int64_t w = 1; w <= static_cast<int64_t>(v) + 1; ++w)
      EXPECT_TRUE(at::equal(one, fold_in_groups(slots, w))) << v << " in groups of " << w;
  }
}

TEST(FoldTree, IsTheBalancedTreeOverSlotIndex) {
  std::vector<at::Tensor> g;
  for (uint64_t s = 0; s < 6; ++s) g.push_back(random_vector(100, s));
  const at::Tensor expected = ((g[0] + g[1]) + (g[2] + g[3])) + (g[4] + g[5]);
  EXPECT_TRUE(at::equal(fold(g, 2, Reduction::kTree), expected));
}

TEST(FoldTree, PartsInBf16AreWidenedFirst) {
  std::vector<at::Tensor> g;
  for (uint64_t s = 0; s < 21; ++s) g.push_back(random_vector(1003, s).to(at::kBFloat16));
  for (const size_t w : {1, 2, 3, 5, 8, 21})
    EXPECT_TRUE(at::equal(fold(g, w, Reduction::kTree), by_pairs(g))) << w;
}

// Six sums are open when the last of 64 slots comes, and one is left: the next tree has the others.
TEST(FoldTree, SumsThatWereAddedServeTheNextTree) {
  constexpr int64_t kElements = 100;
  const at::Tensor slot = random_vector(kElements, 1);
  BufferPool pool;
  std::vector<at::Tensor> folded;
  for (size_t trees = 1; trees <= 3; ++trees) {
    FoldTree tree(kElements, Reduction::kTree, pool);
    for (int64_t s = 0; s < 64; ++s) {
      tree.push(slot, {s, 1});
      tree.end_round();
    }
    folded.push_back(tree.result());
    EXPECT_EQ(pool.allocated_bytes(), (trees + 5) * kElements * sizeof(float));
  }
  EXPECT_TRUE(at::equal(folded[0], slot * 64));
  EXPECT_TRUE(at::equal(folded[0], folded[2])) << "a sum that was not given back is as it was";
}

TEST(FoldTree, ThePlainSumsDependOnTheWorldSize) {
  std::vector<at::Tensor> slots;
  for (uint64_t s = 0; s < 6; ++s) slots.push_back(random_vector(1000, s));
  EXPECT_FALSE(
      at::equal(fold(slots, 1, Reduction::kUnordered), fold(slots, 2, Reduction::kUnordered)));
}

TEST(AddKernels, Bf16RoundingIsLibTorchs) {
  at::Tensor values = random_vector(4096, 1) * 1e3;
  values[0] = std::nanf("");
  values[1] = INFINITY;
  at::Tensor ours = at::empty({4096}, at::kBFloat16);
  narrow<OnCpu>(static_cast<Bf16*>(ours.data_ptr()), values.data_ptr<float>(), 4096);
  EXPECT_TRUE(at::equal(ours.narrow(0, 1, 4095), values.to(at::kBFloat16).narrow(0, 1, 4095)));
  EXPECT_TRUE(std::isnan(ours[0].item<float>()));
}

struct State {
  at::Tensor master = random_vector(3 * kTile, 1), m = random_vector(3 * kTile, 2) * 0.01,
             v = random_vector(3 * kTile, 3).pow(2) * 1e-4, grad = random_vector(3 * kTile, 4);

  void update(const AdamWStep& step, int64_t at, int64_t n) {
    const AdamWRun<float> run{grad.data_ptr<float>() + at,
                              master.data_ptr<float>() + at,
                              m.data_ptr<float>() + at,
                              v.data_ptr<float>() + at,
                              nullptr,
                              n,
                              {},
                              true};
    adamw_update<OnCpu>(step, std::span(&run, 1));
  }
};

TEST(AdamW, MatchesLibTorchsFusedAdamW) {
  State ours, theirs;
  const AdamWStep step = AdamWStep::create(1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 7);
  ours.update(step, 0, ours.master.numel());
  std::vector<at::Tensor> master{theirs.master}, grad{theirs.grad}, m{theirs.m}, v{theirs.v}, none,
      steps{at::tensor(7.0f)};
  at::_fused_adamw_(master, grad, m, v, none, steps, 1e-3, 0.9, 0.95, 0.1, 1e-8, false, false, {},
                    {});
  EXPECT_LT((ours.master - theirs.master).abs().max().item<double>(), 1e-6);
  EXPECT_LT((ours.m - theirs.m).abs().max().item<double>(), 1e-6);
  EXPECT_LT((ours.v - theirs.v).abs().max().item<double>(), 1e-6);
}

TEST(AdamW, TheSameBitsAtAnyCut) {
  State whole, cut;
  const AdamWStep step = AdamWStep::create(1e-3, 0.9, 0.95, 1e-8, 0.1, 0.37, 3);
  whole.update(step, 0, 3 * kTile);
  for (int64_t at = 0; at < 3 * kTile; at += 1001)
    cut.update(step, at, std::min<int64_t>(1001, 3 * kTile - at));
  EXPECT_TRUE(at::equal(whole.master, cut.master) && at::equal(whole.m, cut.m) &&
              at::equal(whole.v, cut.v));
}

TEST(TileNorm, SumsSquaresOfEachTileInFp64) {
  at::Tensor grad = random_vector(2 * kTile, 5);
  const at::Tensor before = grad.clone();
  double sums[2];
  scale_and_square_tiles<OnCpu>(grad.data_ptr<float>(), 0.5f, 2, sums);
  EXPECT_TRUE(at::equal(grad, before * 0.5f));
  EXPECT_NEAR(sums[1], grad.narrow(0, kTile, kTile).to(at::kDouble).pow(2).sum().item<double>(),
              1e-9);
}

TEST(LearningRate, WarmsUpThenDecaysToTheFloor) {
  LrSchedulerConfig s{.warmup_steps = 10, .min_lr_factor = 0.1, .total_steps = 100};
  EXPECT_DOUBLE_EQ(learning_rate(1.0, s, 5), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(1.0, s, 10), 1.0);
  EXPECT_NEAR(learning_rate(1.0, s, 55), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(1.0, s, 100), 0.1, 1e-12);
  s.decay_type = LrDecay::kNone;
  EXPECT_DOUBLE_EQ(learning_rate(1.0, s, 99), 1.0);
  s.decay_type = LrDecay::kLinear;
  s.min_lr_factor = 0;
  EXPECT_NEAR(learning_rate(1.0, s, 55), 0.5, 1e-12);
}

// Warm-up, stable, decay: 10 steps, 60, 30.
TEST(LearningRate, IsStableBeforeTheLastShareOfTheSteps) {
  LrSchedulerConfig s{
      .warmup_steps = 10, .decay_ratio = 0.3, .min_lr_factor = 0.2, .total_steps = 100};
  const auto at = [&s](LrDecay decay, int64_t t) {
    s.decay_type = decay;
    return learning_rate(2.0, s, t);
  };
  for (const LrDecay decay : {LrDecay::kCosine, LrDecay::kLinear, LrDecay::kSqrt}) {
    EXPECT_DOUBLE_EQ(at(decay, 5), 1.0);
    for (const int64_t t : {10, 11, 69, 70}) EXPECT_DOUBLE_EQ(at(decay, t), 2.0) << t;
    for (const int64_t t : {100, 101, 500}) EXPECT_NEAR(at(decay, t), 0.4, 1e-12) << t;
  }
  const double a_third = 10.0 / 30.0;
  EXPECT_NEAR(at(LrDecay::kLinear, 80), 2.0 * (0.2 + 0.8 * (1 - a_third)), 1e-12);
  EXPECT_NEAR(at(LrDecay::kSqrt, 80), 2.0 * (0.2 + 0.8 * (1 - std::sqrt(a_third))), 1e-12);
  EXPECT_NEAR(at(LrDecay::kCosine, 80), 2.0 * (0.2 + 0.8 * 0.75), 1e-12);
  s.decay_ratio = 0.99;  // it would begin within the warm-up
  EXPECT_DOUBLE_EQ(at(LrDecay::kLinear, 10), 2.0);
  EXPECT_NEAR(at(LrDecay::kLinear, 55), 2.0 * (0.2 + 0.8 * 0.5), 1e-12);
}

}  // namespace
}  // namespace lockstep::core
