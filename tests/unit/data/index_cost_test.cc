// What a data set of a billion samples costs before its first batch: there is no index, so nearly
// nothing. Counted are bytes of memory, allocations and reads; times are recorded and judge
// nothing. A program of its own, because it counts every allocation.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include "base/clock.h"
#include "base/text.h"
#include "data/loader/open_dataset.h"
#include "tests/unit/data/memory_files.h"

namespace {
std::atomic<int64_t> live_bytes = 0, peak_bytes = 0, allocations = 0;

void* counted(size_t size) {
  ++allocations;
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

// What it takes of everything that can be counted.
struct Costs {
  int64_t allocations, reads, bytes;
  bool operator==(const Costs&) const = default;
};
void PrintTo(const Costs& costs, std::ostream* out) {
  *out << costs.allocations << " allocations, " << costs.reads << " reads of " << costs.bytes
       << " bytes";
}
int64_t reads = 0, read_bytes = 0;

template <typename F>
Costs costs_of(F&& f) {
  const Costs before{allocations, reads, read_bytes};
  f();
  return {allocations - before.allocations, reads - before.reads, read_bytes - before.bytes};
}

// Two bytes a token; token i is i modulo 50,000. Copied, not made: its time is recorded as well.
MemoryFiles::Source synthetic(int64_t tokens) {
  std::vector<std::byte> period;
  for (int token = 0; token < 50'000; ++token)
    for (const int byte : {token & 0xff, token >> 8})
      period.push_back(static_cast<std::byte>(byte));
  return {2 * tokens, [period](std::span<std::byte> out, int64_t offset) {
            ++reads;
            read_bytes += std::ssize(out);
            for (auto from = static_cast<size_t>(offset) % period.size(); !out.empty(); from = 0) {
              const size_t count = std::min(out.size(), period.size() - from);
              std::copy_n(period.begin() + static_cast<ptrdiff_t>(from), count, out.begin());
              out = out.subspan(count);
            }
          }};
}

double seconds_of(const std::function<void()>& f) {
  const double start_s = system_clock().monotonic_s();
  f();
  return system_clock().monotonic_s() - start_s;
}

void expect_cheap(FileSystem& files, const Config::Data& data, int64_t samples) {
  std::unique_ptr<TokenDataset> dataset;
  peak_bytes = live_bytes.load();
  const int64_t before = live_bytes;
  double open_s = 0;
  const Costs opening = costs_of([&] {
    open_s = seconds_of([&] {
      ASSERT_TRUE(summary_of(files, data).ok());
      auto opened = open_dataset(files, data, {"train", kSeqLen, 4, 8, 42, 50'000});
      ASSERT_TRUE(opened.ok());
      dataset = std::move(opened).value();
    });
  });
  EXPECT_LT(peak_bytes - before, 1 << 20) << "bytes at most";
  EXPECT_LT(live_bytes - before, 1 << 14) << "bytes kept";
  EXPECT_LT(opening.allocations, 1000);
  EXPECT_LT(opening.reads, 2000);
  EXPECT_LT(opening.bytes, 8 << 20) << "of terabytes: blocks of 4 KiB that stand for the file";
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->sample_count(), samples);
  testing::Test::RecordProperty("open_us", static_cast<int>(open_s * 1e6));
  testing::Test::RecordProperty("peak_bytes", static_cast<int>(peak_bytes));
  // Any step, at the start or after years, in no more memory than its tokens take.
  const int64_t then = live_bytes;
  peak_bytes = then;
  for (const int64_t step : {0, 10, 10'000'000, 1'000'000'000}) {
    const auto batch = dataset->batch(step, 7);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    for (size_t i = 0; i < batch.value().tokens.size(); ++i)
      ASSERT_EQ(batch.value().labels[i], (batch.value().tokens[i] + 1) % 50'000);
  }
  EXPECT_LT(peak_bytes - then, 1 << 20);
  // ... and at the same cost.
  const auto batch_at = [&](int64_t step) { EXPECT_TRUE(dataset->batch(step, 7).ok()); };
  const Costs first = costs_of([&] { batch_at(10); });
  EXPECT_EQ(first.bytes, 4 * (kSeqLen + 1) * 2);
  for (const int64_t step : {11, 10'000'000, 1'000'000'000})
    EXPECT_EQ(costs_of([&] { batch_at(step); }), first) << step;
  for (const int64_t step : {10, 10'000'000})
    testing::Test::RecordProperty(text("batch_at_", step, "_ns"),
                                  static_cast<int>(1e9 * seconds_of([&] { batch_at(step); })));
}

TEST(IndexCost, ABillionSamplesOfOneSource) {
  MemoryFiles files;
  files.put("train.bin", synthetic(kSamples * kSeqLen + 1));
  expect_cheap(files, {.path = "train.bin", .kind = DataKind::kNanogpt}, kSamples);
}

TEST(IndexCost, ABillionSamplesOfAMixture) {
  MemoryFiles files;
  files.put("a.bin", synthetic(kSamples / 2 * kSeqLen + 1));
  files.put("b.bin", synthetic(kSamples / 4 * kSeqLen + 1));
  files.put("c.bin", synthetic(kSamples / 4 * kSeqLen + 3));
  expect_cheap(
      files,
      {.kind = DataKind::kNanogpt, .sources = {"a.bin", "b.bin", "c.bin"}, .weights = {5, 3, 2}},
      kSamples);
}

}  // namespace
}  // namespace lockstep::data
