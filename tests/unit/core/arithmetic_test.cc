// Sharding, folding and the optimizer: the same bits at any cut.
#include <gtest/gtest.h>

#include "core/kernels/add_kernels.h"
#include "core/optim/adamw.h"
#include "core/sharding/fold_tree.h"
#include "core/sharding/strategy.h"
#include "layout/shard_layout.h"

namespace lockstep::core {
namespace {

constexpr int64_t kTile = layout::kTileElements;

at::Tensor random_tensor(int64_t n, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn({n}, generator, at::TensorOptions(at::kFloat));
}

TEST(ShardLayout, PartsAreOwnedOnceAndHeldByEveryCopy) {
  for (int64_t tiles : {1, 2, 7, 64, 65})
    for (int w = 1; w <= 9; ++w)
      for (int s = 1; s <= w; ++s) {
        if (w % s != 0) continue;
        const ShardLayout layout = ShardLayout::create(tiles, w, s);
        int64_t next = 0;
        for (int part = 0; part < w; ++part) {
          const int r = layout.owner_of(part);
          EXPECT_EQ(layout.part_of(r), part);
          EXPECT_EQ(layout.first_tile(r), std::min(next, tiles));
          next = layout.first_tile(r) + layout.tile_count(r);
          if (layout.tile_count(r) == 0) continue;
          EXPECT_GE(layout.first_tile(r), layout.first_held_tile(r));
          EXPECT_LE(next, layout.first_held_tile(r) + layout.held_tile_count(r));
        }
        EXPECT_EQ(next, tiles);
        int64_t held = 0;
        for (int r = 0; r < w; ++r) held += layout.held_tile_count(r);
        EXPECT_EQ(held, tiles * layout.copies());
      }
}

TEST(Strategy, GroupsFitWhatIsLeftOfTheNodes) {
  using enum ShardingStrategy;
  Config config;
  auto size = [&](ShardingStrategy strategy, int w, int local, int64_t degree = 0) {
    config.parallelism.strategy = strategy;
    config.parallelism.data_parallel_shard_degree = degree;
    return layout::shard_size(config, w, local);
  };
  EXPECT_EQ(size(kSingle, 1, 1), 1);
  EXPECT_EQ(size(kDdp, 8, 4), 1);
  EXPECT_EQ(size(kFullShard, 8, 4), 8);
  EXPECT_EQ(size(kShardGradOp, 8, 4), 8);
  EXPECT_EQ(size(kHybrid, 8, 4), 4);
  EXPECT_EQ(size(kHybrid, 6, 3), 3);
  EXPECT_EQ(size(kHybrid, 8, 4, 2), 2);
  EXPECT_EQ(size(kHybrid, 6, 4), 6);
  EXPECT_EQ(size(kHybrid, 9, 2), 3);
  EXPECT_EQ(size(kHybrid, 5, 2), 5);
  EXPECT_EQ(size(kHybrid, 2, 4), 2);
}

TEST(SlotMap, EverySlotHasOneRankAndOneRound) {
  for (bool block : {false, true})
    for (int64_t v = 1; v <= 17; ++v)
      for (int w = 1; w <= 9; ++w) {
        const SlotMap map{block, v, w};
        std::vector<int> seen(static_cast<size_t>(v));
        for (int r = 0; r < w; ++r) {
          int64_t last = -1;
          for (int64_t slot : map.slots_of(r)) {
            EXPECT_GT(slot, last);
            last = slot;
            EXPECT_EQ(map.rank_of(slot), r) << v << " " << w;
            ++seen[static_cast<size_t>(slot)];
          }
        }
        for (int count : seen) EXPECT_EQ(count, 1);
        for (int64_t round = 0; round < map.rounds(); ++round) {
          int64_t active = 0;
          for (int r = 0; r < w; ++r) active += map.run_of(round, r, 1).count;
          EXPECT_EQ(active, map.run_of(round, 0, w).count);
        }
      }
}

TEST(SlotMap, SubtreesAreTheFewestNodesOfTheTree) {
  using Runs = std::vector<SlotRun>;
  EXPECT_EQ(layout::subtrees_of({0, 8}), (Runs{{0, 8}}));
  EXPECT_EQ(layout::subtrees_of({1, 7}), (Runs{{1, 1}, {2, 2}, {4, 4}}));
  EXPECT_EQ(layout::subtrees_of({3, 3}), (Runs{{3, 1}, {4, 2}}));
  EXPECT_EQ(layout::subtrees_of({5, 0}), Runs{});
}

TEST(ShardLayout, SegmentsCoverEveryElementOnceWithoutPadding) {
  const layout::UnitSpec unit{"u", {{"a", {5000}, 0}, {"b", {3, 4096}, 0}, {"c", {7}, 0}}};
  for (int w = 1; w <= 7; ++w) {
    const ShardLayout layout = ShardLayout::create(unit.tiles(), w, w);
    std::vector<std::vector<int>> seen{std::vector<int>(5000), std::vector<int>(3 * 4096),
                                       std::vector<int>(7)};
    for (int r = 0; r < w; ++r)
      for (const Segment& s : segments_of(unit, layout.first_tile(r), layout.tile_count(r))) {
        EXPECT_GT(s.length, 0);
        for (int64_t i = 0; i < s.length; ++i)
          ++seen[static_cast<size_t>(s.param)][static_cast<size_t>(s.flat_start + i)];
      }
    for (const auto& param : seen)
      for (int count : param) EXPECT_EQ(count, 1);
  }
}

// The sum of V slots, pushed in rounds of W as W ranks would.
at::Tensor fold(const std::vector<at::Tensor>& slots, size_t w, Reduction reduction) {
  FoldTree tree(slots[0].numel(), reduction);
  for (size_t s = 0; s < slots.size(); ++s) {
    tree.push(slots[s], {static_cast<int64_t>(s), 1});
    if ((s + 1) % w == 0 || s + 1 == slots.size()) tree.end_round();
  }
  return tree.result().clone();
}

// The same, with runs of `at_once` slots added where they lie, as groups of ranks would.
at::Tensor fold_in_groups(const std::vector<at::Tensor>& slots, int64_t at_once) {
  FoldTree group(slots[0].numel(), Reduction::kTree), all(slots[0].numel(), Reduction::kTree);
  const int64_t v = static_cast<int64_t>(slots.size());
  for (int64_t first = 0; first < v; first += at_once) {
    const SlotRun run{first, std::min(at_once, v - first)};
    for (int64_t s = first; s < run.end(); ++s) group.push(slots[static_cast<size_t>(s)], {s, 1});
    std::vector<at::Tensor> sums = group.take_partials();
    const std::vector<SlotRun> nodes = subtrees_of(run);
    EXPECT_EQ(sums.size(), nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) all.push(sums[i], nodes[i]);
    group.give_back(std::move(sums));
  }
  return all.result().clone();
}

TEST(FoldTree, AnyWorldSizeGivesTheSameBits) {
  for (size_t v : {1, 2, 3, 4, 5, 6, 7, 8, 13}) {
    std::vector<at::Tensor> slots;
    for (size_t s = 0; s < v; ++s) slots.push_back(random_tensor(1000, s));
    const at::Tensor one = fold(slots, 1, Reduction::kTree);
    for (size_t w = 2; w <= v + 1; ++w)
      EXPECT_TRUE(at::equal(one, fold(slots, w, Reduction::kTree))) << v << " " << w;
    for (int64_t w = 1; w <= static_cast<int64_t>(v) + 1; ++w)
      EXPECT_TRUE(at::equal(one, fold_in_groups(slots, w))) << v << " in groups of " << w;
  }
}

TEST(FoldTree, IsTheBalancedTreeOverSlotIndex) {
  std::vector<at::Tensor> g;
  for (uint64_t s = 0; s < 6; ++s) g.push_back(random_tensor(100, s));
  const at::Tensor expected = ((g[0] + g[1]) + (g[2] + g[3])) + (g[4] + g[5]);
  EXPECT_TRUE(at::equal(fold(g, 2, Reduction::kTree), expected));
}

TEST(FoldTree, ThePlainSumsDependOnTheWorldSize) {
  std::vector<at::Tensor> slots;
  for (uint64_t s = 0; s < 6; ++s) slots.push_back(random_tensor(1000, s));
  EXPECT_FALSE(
      at::equal(fold(slots, 1, Reduction::kUnordered), fold(slots, 2, Reduction::kUnordered)));
}

TEST(AddKernels, Bf16RoundingIsLibTorchs) {
  at::Tensor values = random_tensor(4096, 1) * 1e3;
  values[0] = std::nanf("");
  values[1] = INFINITY;
  at::Tensor ours = at::empty({4096}, at::kBFloat16);
  narrow_to_bf16(static_cast<uint16_t*>(ours.data_ptr()), values.data_ptr<float>(), 4096);
  EXPECT_TRUE(at::equal(ours.narrow(0, 1, 4095), values.to(at::kBFloat16).narrow(0, 1, 4095)));
  EXPECT_TRUE(std::isnan(ours[0].item<float>()));
}

struct State {
  at::Tensor master = random_tensor(3 * kTile, 1), m = random_tensor(3 * kTile, 2) * 0.01,
             v = random_tensor(3 * kTile, 3).pow(2) * 1e-4, grad = random_tensor(3 * kTile, 4);
};

TEST(AdamW, MatchesLibTorchsFusedAdamW) {
  State ours, theirs;
  const AdamWStep step = AdamWStep::create(1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 7);
  adamw_update(step, true, ours.grad.data_ptr<float>(), ours.master.data_ptr<float>(),
               ours.m.data_ptr<float>(), ours.v.data_ptr<float>(), ours.master.numel());
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
  auto update = [&](State& s, int64_t at, int64_t n) {
    adamw_update(step, true, s.grad.data_ptr<float>() + at, s.master.data_ptr<float>() + at,
                 s.m.data_ptr<float>() + at, s.v.data_ptr<float>() + at, n);
  };
  update(whole, 0, 3 * kTile);
  for (int64_t at = 0; at < 3 * kTile; at += 1001)
    update(cut, at, std::min<int64_t>(1001, 3 * kTile - at));
  EXPECT_TRUE(at::equal(whole.master, cut.master) && at::equal(whole.m, cut.m) &&
              at::equal(whole.v, cut.v));
}

TEST(TileNorm, SumsSquaresOfEachTileInFp64) {
  at::Tensor grad = random_tensor(2 * kTile, 5);
  const at::Tensor before = grad.clone();
  double sums[2];
  scale_and_square_tiles(grad.data_ptr<float>(), 0.5f, 2, sums);
  EXPECT_TRUE(at::equal(grad, before * 0.5f));
  EXPECT_NEAR(sums[1], grad.narrow(0, kTile, kTile).to(at::kDouble).pow(2).sum().item<double>(),
              1e-9);
}

TEST(LearningRate, WarmsUpThenDecaysToTheFloor) {
  EXPECT_DOUBLE_EQ(learning_rate(1.0, 10, 100, LrDecay::kCosine, 0.1, 5), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(1.0, 10, 100, LrDecay::kCosine, 0.1, 10), 1.0);
  EXPECT_NEAR(learning_rate(1.0, 10, 100, LrDecay::kCosine, 0.1, 55), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(1.0, 10, 100, LrDecay::kCosine, 0.1, 100), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate(1.0, 10, 100, LrDecay::kLinear, 0.0, 55), 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(1.0, 10, 100, LrDecay::kNone, 0.1, 99), 1.0);
}

}  // namespace
}  // namespace lockstep::core
