#include "data/order/sample_order.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "base/hash.h"

namespace lockstep::data {
namespace {

// True when `order` maps [0, n) onto itself.
bool is_permutation(int64_t n, uint64_t seed, int64_t epoch) {
  const SampleOrder order(n, seed, epoch);
  std::vector<bool> seen(static_cast<size_t>(n), false);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t image = order(i);
    if (image < 0 || image >= n || seen[static_cast<size_t>(image)]) return false;
    seen[static_cast<size_t>(image)] = true;
  }
  return true;
}

TEST(SampleOrder, IsABijectionForEverySmallCount) {
  for (int64_t n = 1; n <= 4096; ++n) ASSERT_TRUE(is_permutation(n, 42, n % 3)) << "n " << n;
}

TEST(SampleOrder, IsABijectionAroundPowersOfTwo) {
  for (int k = 13; k <= 18; ++k)
    for (int64_t n : {(int64_t{1} << k) - 1, int64_t{1} << k, (int64_t{1} << k) + 1})
      ASSERT_TRUE(is_permutation(n, 7, 1)) << "n " << n;
}

TEST(SampleOrder, ImagesAreDistinctAndInRangeForHugeCounts) {
  for (int k = 19; k <= 40; ++k) {
    for (int64_t n : {(int64_t{1} << k) - 1, int64_t{1} << k, (int64_t{1} << k) + 1}) {
      const SampleOrder order(n, 3, 0);
      std::set<int64_t> positions = {0, 1, n / 2, n - 2, n - 1};
      for (uint64_t i = 0; i < 2000; ++i)
        positions.insert(static_cast<int64_t>(mix64(i) % static_cast<uint64_t>(n)));
      std::set<int64_t> images;
      for (int64_t position : positions) {
        const int64_t image = order(position);
        ASSERT_GE(image, 0);
        ASSERT_LT(image, n);
        images.insert(image);
      }
      ASSERT_EQ(images.size(), positions.size()) << "n " << n;
    }
  }
}

// These never change: an order that moved would change every run's losses.
TEST(SampleOrder, GoldenValues) {
  const auto first = [](int64_t n, uint64_t seed, int64_t epoch) {
    std::vector<int64_t> images;
    const SampleOrder order(n, seed, epoch);
    for (int64_t i = 0; i < 6; ++i) images.push_back(order(i));
    return images;
  };
  using Images = std::vector<int64_t>;
  EXPECT_EQ(first(10, 42, 0), (Images{3, 0, 1, 7, 5, 4}));
  EXPECT_EQ(first(1000, 42, 0), (Images{608, 939, 884, 586, 542, 600}));
  EXPECT_EQ(first(1000, 42, 1), (Images{42, 995, 299, 656, 328, 400}));
  EXPECT_EQ(first(1000, 43, 0), (Images{334, 520, 978, 176, 945, 46}));
  EXPECT_EQ(
      first((int64_t{1} << 40) + 1, 42, 0),
      (Images{160317321056, 515150450933, 911021473369, 858130570153, 834265402050, 460550107537}));
}

TEST(SampleOrder, SeedAndEpochAreNotAdded) {
  const SampleOrder a(100000, 1, 1), b(100000, 2, 0);
  int equal = 0;
  for (int64_t i = 0; i < 1000; ++i) equal += a(i) == b(i);
  EXPECT_LT(equal, 5);
}

// Chi-square of `counts` against a flat distribution, in standard deviations from its mean.
double deviation_of(const std::vector<int64_t>& counts, double expected) {
  double chi_square = 0;
  for (int64_t count : counts) {
    const double d = static_cast<double>(count) - expected;
    chi_square += d * d / expected;
  }
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

TEST(SampleOrder, PositionsAreFlatOverSeeds) {
  for (int64_t n : {3, 10, 100, 257, 1000}) {
    for (int64_t position : {int64_t{0}, n / 2, n - 1}) {
      std::vector<int64_t> counts(static_cast<size_t>(n), 0);
      const int64_t trials = 200 * n;
      for (int64_t seed = 0; seed < trials; ++seed)
        ++counts[static_cast<size_t>(SampleOrder(n, static_cast<uint64_t>(seed), 0)(position))];
      EXPECT_LT(std::abs(deviation_of(counts, 200)), 6) << "n " << n << " position " << position;
    }
  }
}

TEST(SampleOrder, StepsBetweenNeighboursAreFlat) {
  const int64_t n = 1 << 16, buckets = 64;
  const SampleOrder order(n, 5, 0);
  std::vector<int64_t> counts(buckets, 0);
  for (int64_t i = 0; i + 1 < n; ++i)
    ++counts[static_cast<size_t>((order(i + 1) - order(i) + n) % n * buckets / n)];
  EXPECT_LT(std::abs(deviation_of(counts, static_cast<double>(n) / buckets)), 6);
}

// Where a sample is followed by which: no pair of regions is preferred.
TEST(SampleOrder, SuccessivePairsAreFlat) {
  constexpr int64_t kBuckets = 32;
  for (const int64_t n : {int64_t{1} << 16, (int64_t{1} << 17) + 1, int64_t{100'003}}) {
    const SampleOrder order(n, 11, 2);
    std::vector<int64_t> counts(kBuckets * kBuckets, 0);
    int64_t before = order(0);
    for (int64_t i = 1; i < n; ++i) {
      const int64_t now = order(i);
      ++counts[static_cast<size_t>(before * kBuckets / n * kBuckets + now * kBuckets / n)];
      before = now;
    }
    const double expected = static_cast<double>(n - 1) / (kBuckets * kBuckets);
    EXPECT_LT(std::abs(deviation_of(counts, expected)), 6) << "n " << n;
  }
}

TEST(SampleOrderDeathTest, RefusesWhatLiesOutside) {
  EXPECT_DEATH(SampleOrder(0, 1, 0), "sample_count");
  EXPECT_DEATH(SampleOrder(10, 1, -1), "epoch");
  EXPECT_DEATH(SampleOrder(10, 1, 0)(10), "position");
}

}  // namespace
}  // namespace lockstep::data
