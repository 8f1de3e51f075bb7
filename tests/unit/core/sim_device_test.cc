// The simulated device itself: what is given to it is done late, in the order of streams and
// events, and misuse shows.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "core/device/sim_device.h"
#include "core/kernels/kernel_table.h"
#include "core/kernels/sim/sim_kernels.h"
#include "tests/support/device_checks.h"

namespace lockstep::core {
namespace {

constexpr uint64_t kSeeds = 40;
const at::Device kSimulated(kSim, 0);

class Sim : public testing::Environment {
  void SetUp() override { use_sim(); }
};
[[maybe_unused]] testing::Environment* const sim = testing::AddGlobalTestEnvironment(new Sim);

at::TensorOptions floats() { return at::TensorOptions(at::kFloat).device(kSimulated); }

// `count` seeds for which `what` holds.
uint64_t seeds_with(const std::function<bool()>& what) {
  uint64_t count = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SimWorld world({.seed = seed});
    count += what();
  }
  return count;
}

TEST(SimDevice, DoesWhatADeviceDoes) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SimWorld world({.seed = seed});
    check_device(sim_device(), kSimulated);
  }
}

TEST(SimDevice, WorkIsDoneLateUntilTheHostWaits) {
  const uint64_t late = seeds_with([] {
    const at::Tensor host = sim_device().host_tensor({4}, at::kFloat).fill_(1);
    const at::Tensor t = at::full({4}, 7, floats());
    host.copy_(t, /*non_blocking=*/true);
    const bool before = host[0].item<float>() == 7;
    sim_device().current_stream()->synchronize();
    EXPECT_EQ(host[0].item<float>(), 7);
    return !before;
  });
  EXPECT_GT(late, kSeeds / 4);
  EXPECT_LT(late, kSeeds) << "some seeds do work at once";
}

TEST(SimDevice, ACopyThatBlocksWaits) {
  EXPECT_EQ(seeds_with([] { return at::full({4}, 7, floats()).cpu()[3].item<float>() == 7; }),
            kSeeds);
}

// A task of `stream` that sets x.
void set_on(const Stream& stream, float* x, float value) {
  SimWorld::here().give(queue_of(stream), {"set", [=] { *x = value; }});
}
void multiply_on(const Stream& stream, float* x, float factor) {
  SimWorld::here().give(queue_of(stream), {"multiply", [=] { *x *= factor; }});
}

TEST(SimDevice, EventsOrderStreamsAndWithoutThemThereIsNoOrder) {
  const auto result = [](bool with_event) {
    float x = 0;
    const auto first = sim_device().new_stream(), second = sim_device().new_stream();
    set_on(*first, &x, 3);
    if (with_event) second->wait_for(*first->record());
    multiply_on(*second, &x, 5);
    first->synchronize();
    second->synchronize();
    return x;
  };
  EXPECT_EQ(seeds_with([&] { return result(true) == 15; }), kSeeds);
  const uint64_t by_luck = seeds_with([&] { return result(false) == 15; });
  EXPECT_GT(by_luck, 0u);
  EXPECT_LT(by_luck, kSeeds);
}

TEST(SimDevice, FreshAndFreedMemoryIsPoison) {
  SimWorld world({.seed = 1});
  EXPECT_TRUE(at::empty({8}, floats()).cpu().isnan().all().item<bool>());
  void* address = nullptr;
  {
    const at::Tensor t = at::zeros({8}, floats());
    address = t.data_ptr();
    EXPECT_EQ(t.cpu().sum().item<float>(), 0);
  }
  const at::Tensor again = at::empty({8}, floats());
  EXPECT_EQ(again.data_ptr(), address) << "memory is used again";
  EXPECT_TRUE(again.cpu().isnan().all().item<bool>());
}

// The launched work knows the address alone.
TEST(SimDevice, WorkOnMemoryThatIsFreedMeanwhileIsInOrderOnOneStream) {
  EXPECT_EQ(seeds_with([] {
              at::Tensor sum = at::ones({8}, floats());
              for (int i = 0; i < 5; ++i) sum.add_(at::full({8}, i, floats()));
              return sum.cpu()[7].item<float>() == 11;
            }),
            kSeeds);
}

TEST(SimDevice, HostMemoryOfACopyIsUsedAgainWhenItIsDone) {
  const auto result = [](std::function<bool(const SimCall&)> leaves_out) {
    uint64_t right = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SimWorld world({.seed = seed, .leaves_out = leaves_out});
      std::vector<at::Tensor> there;
      for (int i = 0; i < 4; ++i) {
        const at::Tensor host = sim_device().host_tensor({8}, at::kFloat).fill_(i);
        there.push_back(sim_device().copy_of(host, kSimulated));
      }
      right += there[0].cpu()[0].item<float>() == 0;
    }
    return right;
  };
  EXPECT_EQ(result({}), kSeeds);
  EXPECT_LT(result([](const SimCall& c) { return c.rule == SimCall::Rule::kHostReuse; }), kSeeds);
}

TEST(SimDevice, AnUnknownOperationIsAnError) {
  SimWorld world({.seed = 1});
  const at::Tensor t = at::zeros({8}, floats());
  EXPECT_THROW(t.cos(), std::exception);
  EXPECT_THROW(t.sum(), std::exception);
}

TEST(SimDevice, WhatFailsOnTheDeviceIsSeenWhenTheHostWaits) {
  SimWorld world({.seed = 1});
  const at::Tensor row = at::full({1}, 9, at::TensorOptions(at::kLong).device(kSimulated));
  const at::Tensor picked = at::zeros({4, 2}, floats()).index_select(0, row);
  EXPECT_THROW(picked.cpu(), SimFailure);
}

TEST(SimDevice, AWaitThatNothingCanEndIsAnError) {
  SimWorld world({.seed = 1});
  const auto stream = sim_device().new_stream();
  SimWorld::here().give(queue_of(*stream), {"never", [] {}, [] { return false; }});
  EXPECT_THROW(stream->synchronize(), SimFailure);
}

TEST(SimDeviceDeathTest, TheHostMayNotTouchItsMemory) {
  SimWorld world({.seed = 1});
  const at::Tensor t = at::zeros({8}, floats());
  EXPECT_DEATH((void)*static_cast<volatile float*>(t.data_ptr()), "the host touched memory of a");
  EXPECT_DEATH(*static_cast<volatile float*>(t.data_ptr()) = 1, "the host touched memory of a");
}

TEST(SimKernels, TheTableIsChosenByTheDevice) {
  EXPECT_NE(&kernels_on(kSimulated), &kernels_on(at::kCPU));
  EXPECT_EQ(&local_device(), &sim_device());
}

TEST(SimWorld, TheSameSeedIsTheSameRun) {
  const auto run = [](uint64_t seed) {
    std::string order;
    SimWorld world({.seed = seed});
    const auto first = sim_device().new_stream(), second = sim_device().new_stream();
    for (int i = 0; i < 20; ++i)
      for (const Stream* stream : {first.get(), second.get()})
        world.give(queue_of(*stream), {"note", [&order, which = stream == first.get()] {
                                         order += which ? 'a' : 'b';
                                       }});
    first->synchronize();
    second->synchronize();
    return order;
  };
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    EXPECT_EQ(run(seed), run(seed));
    orders.insert(run(seed));
  }
  EXPECT_GT(orders.size(), 5u);
}

}  // namespace
}  // namespace lockstep::core
