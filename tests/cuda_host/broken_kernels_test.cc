// The emulator finds what it promises to find, in kernels that have one fault each.
#include "tests/cuda_host/broken_kernels.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "tests/cuda_host/device_memory.h"
#include "tests/cuda_host/emulator.h"

namespace lockstep::cuda_host {
namespace {

using Floats = core::Array<core::OnCuda, float>;

std::vector<float> counted(size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

// What the emulator says of a launch; "" where it runs to its end.
template <typename F>
std::string said_of(F launch) {
  try {
    launch();
  } catch (const KernelFault& fault) {
    return fault.what();
  }
  return "";
}
template <typename F>
void expect_fault(F launch, const std::string& what) {
  for (const Order order : {Order::kForward, Order::kBackward, Order::kShuffled}) {
    settings().order = order;
    EXPECT_THAT(said_of(launch), testing::HasSubstr(what));
  }
}

TEST(Emulator, RunsThreadsOverBarriersAndShuffles) {
  Floats in(counted(64)), out(counted(64)), sum(counted(1)), places(std::vector<float>(9));
  core::expect_same_each_time([&] {
    reverse(Reverse::kRight, in.get(), out.get());
    warp_sum(WarpSum::kRight, in.get(), sum.get());
    write_places(false, 9, places.get());
    std::vector<float> want = in.read();
    std::reverse(want.begin(), want.end());
    EXPECT_EQ(out.read(), want);
    EXPECT_EQ(sum.read()[0], 32 * 33 / 2);
    EXPECT_EQ(places.read(), std::vector<float>(9, 1.0f));
    return uint64_t{0};
  });
}

TEST(Emulator, AThreadThatLeavesBeforeABarrierIsNamed) {
  Floats in(counted(64)), out(counted(64));
  expect_fault([&] { reverse(Reverse::kOneLeaves, in.get(), out.get()); },
               "reverse_kernel, block 0: 63 of 64 threads stand at a barrier");
  expect_fault([&] { reverse(Reverse::kOneLeaves, in.get(), out.get()); },
               "thread 5 has left the kernel");
  reverse(Reverse::kRight, in.get(), out.get());
  EXPECT_EQ(out.read()[0], 64) << "after a fault the emulator is as new";
}

TEST(Emulator, TwoBarriersAreNotOne) {
  Floats in(counted(64)), out(counted(64));
  expect_fault([&] { reverse(Reverse::kTwoBarriers, in.get(), out.get()); },
               "stands at the barrier broken_kernels.cu:");
}

TEST(Emulator, ShufflesOfOtherLanesThanMeetAreRefused) {
  Floats in(counted(32)), out(counted(1));
  const auto sum = [&](WarpSum how) { return [&, how] { warp_sum(how, in.get(), out.get()); }; };
  expect_fault(sum(WarpSum::kHalfAtTheShuffle), "waits at the shuffle broken_kernels.cu:");
  expect_fault(sum(WarpSum::kWrongMask), "its mask lacks ");
  expect_fault(sum(WarpSum::kLaneOutside), "which it asks");
  expect_fault(sum(WarpSum::kOneLeaves), "at the shuffle");
  expect_fault(sum(WarpSum::kTwoMasks), "wait with another mask");
}

TEST(Emulator, GridsThatADeviceDoesNotTakeAreRefused) {
  Floats out(counted(1));
  expect_fault([&] { write_places(false, 0, out.get()); }, "a grid of 0 x 1 x 1 blocks");
  expect_fault([&] { write_places(false, int64_t{1} << 31, out.get()); }, "a grid of 2147483648");
}

TEST(Emulator, ABarrierThatIsTakenOutIsNotMet) {
  Floats in(counted(64)), out(counted(64));
  reverse(Reverse::kRight, in.get(), out.get());
  const auto record = records().find("lockstep::cuda_host::reverse_kernel");
  ASSERT_NE(record, records().end());
  EXPECT_EQ(record->second.barriers, 1);
  EXPECT_EQ(record->second.most_threads, 64);
  settings().taken_out = Barrier{"lockstep::cuda_host::reverse_kernel", 0};
  EXPECT_THAT(said_of([&] { reverse(Reverse::kOneLeaves, in.get(), out.get()); }),
              testing::Not(testing::HasSubstr("has left")));
  settings().taken_out.reset();
}

}  // namespace
}  // namespace lockstep::cuda_host
