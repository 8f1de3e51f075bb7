#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "data/loader/slot_loader.h"
#include "data/loader/token_dataset.h"

namespace lockstep::data {
namespace {

// Batches that name themselves; fails from `fail_step` on, and waits for `gate` before each batch.
class NamedDataset final : public TokenDataset {
 public:
  int64_t sample_count() const override { return 1; }
  Result<SlotBatch> sample(int64_t index) const override { return batch(index, 0); }
  Result<SlotBatch> batch(int64_t step, int64_t slot) const override {
    if (gate.valid()) gate.wait();
    ++calls;
    if (step >= fail_step) return Error{Code::kCorrupt, "step is bad"};
    SlotBatch named;
    named.step = step;
    named.slot = slot;
    return named;
  }
  int64_t fail_step = int64_t{1} << 60;
  std::shared_future<void> gate;
  mutable std::atomic<int> calls = 0;
};

// Each look at the clock takes a quarter of a second.
class SteppingClock final : public Clock {
 public:
  int64_t monotonic_ns() override { return now_ns_ += 250'000'000; }
  int64_t unix_ns() override { return 0; }
  void sleep_ns(int64_t) override {}

 private:
  std::atomic<int64_t> now_ns_ = 0;
};

TEST(SlotLoader, ServesTheRanksSlotsInOrderFromTheFirstStep) {
  const NamedDataset dataset;
  auto loader = SlotLoader::create(dataset, {5, 1, 3}, 7, 2);
  for (int64_t step = 7; step < 40; ++step) {
    for (int64_t slot : {5, 1, 3}) {
      auto batch = loader->next();
      ASSERT_TRUE(batch.ok());
      EXPECT_EQ(batch->step, step);
      EXPECT_EQ(batch->slot, slot);
    }
  }
}

TEST(SlotLoader, PrefetchesNoMoreThanAsked) {
  const NamedDataset dataset;
  auto loader = SlotLoader::create(dataset, {0}, 0, 3);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(loader->next().ok());
  loader.reset();
  EXPECT_LE(dataset.calls, 10 + 3 + 1);  // in the queue, and one in the thread's hand
}

TEST(SlotLoader, AnErrorArrivesInItsPlaceAndStays) {
  NamedDataset dataset;
  dataset.fail_step = 2;
  auto loader = SlotLoader::create(dataset, {0, 1}, 0, 8);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(loader->next().ok());
  for (int i = 0; i < 3; ++i) {
    const auto batch = loader->next();
    ASSERT_FALSE(batch.ok());
    EXPECT_EQ(batch.error().code, Code::kCorrupt);
    EXPECT_EQ(batch.error().message, "step is bad");
  }
  EXPECT_EQ(dataset.calls, 5);
}

TEST(SlotLoader, CountsTheTimeSpentWaiting) {
  const NamedDataset dataset;
  SteppingClock clock;
  auto loader = SlotLoader::create(dataset, {0}, 0, 1, clock);
  EXPECT_EQ(loader->wait_s(), 0.0);
  ASSERT_TRUE(loader->next().ok());
  EXPECT_EQ(loader->wait_s(), 0.25);
  ASSERT_TRUE(loader->next().ok());
  EXPECT_EQ(loader->wait_s(), 0.5);
}

// Says when it is looked at for the first time: whoever asks for a batch begins to wait.
class LookedAtClock final : public Clock {
 public:
  int64_t monotonic_ns() override {
    const int64_t now = now_ns;
    if (!seen_.exchange(true)) looked_at.set_value();
    return now;
  }
  int64_t unix_ns() override { return 0; }
  void sleep_ns(int64_t) override {}
  std::promise<void> looked_at;
  std::atomic<int64_t> now_ns = 0;

 private:
  std::atomic<bool> seen_ = false;
};

TEST(SlotLoader, WaitsForASlowDataset) {
  NamedDataset dataset;
  LookedAtClock clock;
  std::promise<void> open_gate;
  dataset.gate = open_gate.get_future().share();
  auto loader = SlotLoader::create(dataset, {0}, 0, 1, clock);
  auto first = std::async(std::launch::async, [&] { return loader->next(); });
  clock.looked_at.get_future().wait();
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  clock.now_ns = 3'000'000'000;
  open_gate.set_value();
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(loader->wait_s(), 3);
}

TEST(SlotLoader, ARankWithoutSlotsHasNothingToServe) {
  const NamedDataset dataset;
  auto loader = SlotLoader::create(dataset, {}, 0, 1);
  const auto batch = loader->next();
  ASSERT_FALSE(batch.ok());
  EXPECT_EQ(batch.error().code, Code::kBug);
  loader.reset();
  EXPECT_EQ(dataset.calls, 0);
}

}  // namespace
}  // namespace lockstep::data
