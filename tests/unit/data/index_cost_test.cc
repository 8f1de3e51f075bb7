// What a data set of a billion samples costs before its first batch: there is no index, so nearly
// nothing. A program of its own, because it counts every allocation, and serial, because it
// measures time.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "base/clock.h"
#include "data/loader/open_dataset.h"
#include "tests/unit/data/memory_files.h"

namespace {
std::atomic<int64_t> live_bytes = 0, peak_bytes = 0;

void* counted(size_t size) {
  void* const block = std::malloc(size);
  if (block == nullptr) std::abort();
  const auto usable = static_cast<int64_t>(malloc_usable_size(block));
  const int64_t live = live_bytes += usable;
  int64_t peak = peak_bytes;
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return block;
}
void release(void* block) {
  if (block != nullptr) live_bytes -= static_cast<int64_t>(malloc_usable_size(block));
  std::free(block);
}
}  // namespace

void* operator new(size_t size) { return counted(size); }
void* operator new[](size_t size) { return counted(size); }
void operator delete(void* block) noexcept { release(block); }
void operator delete[](void* block) noexcept { release(block); }
void operator delete(void* block, size_t) noexcept { release(block); }
void operator delete[](void* block, size_t) noexcept { release(block); }

namespace lockstep::data {
namespace {

constexpr int64_t kSamples = 1'000'000'000, kSeqLen = 2048;

// Two bytes a token; token i is i modulo 50,000. Copied, not made: its time is measured as well.
MemoryFiles::Source synthetic(int64_t tokens) {
  std::vector<std::byte> period;
  for (int token = 0; token < 50'000; ++token)
    for (const int byte : {token & 0xff, token >> 8})
      period.push_back(static_cast<std::byte>(byte));
  return {2 * tokens, [period](std::span<std::byte> out, int64_t offset) {
            for (auto from = static_cast<size_t>(offset) % period.size(); !out.empty(); from = 0) {
              const size_t count = std::min(out.size(), period.size() - from);
              std::copy_n(period.begin() + static_cast<ptrdiff_t>(from), count, out.begin());
              out = out.subspan(count);
            }
          }};
}

void expect_cheap(FileSystem& files, const Config::Data& data, int64_t samples) {
  Clock& clock = system_clock();
  double best_s = 1;
  std::unique_ptr<TokenDataset> dataset;
  for (int round = 0; round < 50 && best_s >= 0.010; ++round) {  // the machine may be busy
    dataset.reset();
    peak_bytes = live_bytes.load();
    const int64_t before = live_bytes;
    const double start_s = clock.monotonic_s();
    auto summary = summary_of(files, data);
    auto opened = open_dataset(files, data, {"train", kSeqLen, 4, 8, 42, 50'000});
    best_s = std::min(best_s, clock.monotonic_s() - start_s);
    ASSERT_TRUE(summary.ok() && opened.ok());
    dataset = std::move(opened).value();
    EXPECT_LT(peak_bytes - before, 1 << 20) << "bytes at most";
    EXPECT_LT(live_bytes - before, 1 << 14) << "bytes kept";
  }
  EXPECT_EQ(dataset->sample_count(), samples);
  EXPECT_LT(best_s, 0.010);
  testing::Test::RecordProperty("open_us", static_cast<int>(best_s * 1e6));
  testing::Test::RecordProperty("peak_bytes", static_cast<int>(peak_bytes));
  // Any step, at the start or after years, in no more memory than its tokens take.
  const int64_t before = live_bytes;
  peak_bytes = before;
  for (const int64_t step : {0, 10, 10'000'000, 1'000'000'000}) {
    const auto batch = dataset->batch(step, 7);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    for (size_t i = 0; i < batch.value().tokens.size(); ++i)
      ASSERT_EQ(batch.value().labels[i], (batch.value().tokens[i] + 1) % 50'000);
  }
  EXPECT_LT(peak_bytes - before, 1 << 20);
  // ... and in no more time.
  const auto seconds_at = [&](int64_t step) {
    double least_s = 1;
    for (int64_t i = 0; i < 200; ++i) {
      const double start_s = clock.monotonic_s();
      EXPECT_TRUE(dataset->batch(step + i, 7).ok());
      least_s = std::min(least_s, clock.monotonic_s() - start_s);
    }
    return least_s;
  };
  const double early_s = seconds_at(10), late_s = seconds_at(10'000'000);
  EXPECT_LT(late_s, 3 * early_s) << "a batch at step 10 takes " << early_s << " s";
  testing::Test::RecordProperty("batch_at_10_ns", static_cast<int>(early_s * 1e9));
  testing::Test::RecordProperty("batch_at_10_million_ns", static_cast<int>(late_s * 1e9));
}

TEST(IndexCost, ABillionSamplesOfOneSource) {
  MemoryFiles files;
  files.put("train.bin", synthetic(kSamples * kSeqLen + 1));
  expect_cheap(files, {.path = "train.bin", .kind = "nanogpt"}, kSamples);
}

TEST(IndexCost, ABillionSamplesOfAMixture) {
  MemoryFiles files;
  files.put("a.bin", synthetic(kSamples / 2 * kSeqLen + 1));
  files.put("b.bin", synthetic(kSamples / 4 * kSeqLen + 1));
  files.put("c.bin", synthetic(kSamples / 4 * kSeqLen + 3));
  expect_cheap(files,
               {.kind = "nanogpt", .sources = {"a.bin", "b.bin", "c.bin"}, .weights = {5, 3, 2}},
               kSamples);
}

}  // namespace
}  // namespace lockstep::data
