// What the ranks of a node keep of a unit between its gathers of a step.
#include "core/sharding/gathered_params.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/thread_group.h"
#include "tests/unit/layout/small_model.h"

namespace lockstep::core {
namespace {

constexpr int kRanks = 4, kOfNode = 2;

// Rank r's shard is full of a number plus r.
class GatheredOnNodes {
 public:
  GatheredOnNodes(const Groups& groups, const layout::UnitSpec& spec,
                  const layout::ShardLayout& layout, bool keeps)
      : groups_(groups),
        spec_(spec),
        layout_(layout),
        shard_(at::full({layout.owned_elements()}, 0.0, at::kFloat)),
        params_(spec, layout, strategy(keeps), shard_, groups, pool_) {}
  void fill(int number) { shard_.fill_(number + groups_.world->rank()); }
  void expect_gathered(int number) {
    params_.start();
    ASSERT_TRUE(params_.finish().ok());
    const std::vector<int64_t> offsets = layout::param_offsets(spec_);
    for (size_t i = 0; i < offsets.size(); ++i) {
      const int part = static_cast<int>(offsets[i] / layout_.owned_elements());
      EXPECT_EQ(params_.weight(static_cast<int>(i)).flatten()[0].item<float>(),
                static_cast<float>(number + layout_.owner_of(part)))
          << "parameter " << i << " on rank " << groups_.world->rank();
    }
    params_.release();
  }
  void forget() { params_.forget(); }
  // How often the foreign bytes of its part have come to this rank.
  int64_t times_crossed() const {
    return groups_.peers->wire_bytes().gather.all / (4 * layout_.owned_elements());
  }

 private:
  static Strategy strategy(bool keeps) {
    Strategy s;
    s.keep_joint_part = keeps;
    return s;
  }
  Groups groups_;
  const layout::UnitSpec& spec_;
  const layout::ShardLayout& layout_;
  BufferPool pool_;
  at::Tensor shard_;
  GatheredParams params_;
};

void on_nodes(bool keeps, const std::function<void(GatheredOnNodes&)>& body) {
  const layout::ModelSpec model = layout::small_model(1);
  const layout::UnitSpec& spec = model.units[1];
  const layout::GroupSizes sizes{kRanks, kOfNode};
  const auto layout = layout::ShardLayout::create(spec.tiles(), kRanks, sizes);
  ASSERT_GT(layout.tiles_per_rank, 1);
  ThreadGroups groups(kRanks, sizes, kOfNode);
  std::vector<std::thread> ranks;
  for (int r = 0; r < kRanks; ++r)
    ranks.emplace_back([&, r] {
      GatheredOnNodes one(groups.of(r), spec, layout, keeps);
      body(one);
    });
  for (std::thread& rank : ranks) rank.join();
}

TEST(GatheredParams, ANodeGathersFromWhatItKeptUntilThatIsForgotten) {
  on_nodes(/*keeps=*/true, [](GatheredOnNodes& one) {
    one.fill(10);
    one.expect_gathered(10);
    EXPECT_EQ(one.times_crossed(), 1);
    one.fill(20);
    one.expect_gathered(10);
    EXPECT_EQ(one.times_crossed(), 1);
    one.forget();
    one.expect_gathered(20);
    EXPECT_EQ(one.times_crossed(), 2);
  });
}

TEST(GatheredParams, WithoutThatEachGatherIsOfTheShards) {
  on_nodes(/*keeps=*/false, [](GatheredOnNodes& one) {
    for (const int number : {10, 20}) {
      one.fill(number);
      one.expect_gathered(number);
    }
    EXPECT_EQ(one.times_crossed(), 2);
  });
}

}  // namespace
}  // namespace lockstep::core
