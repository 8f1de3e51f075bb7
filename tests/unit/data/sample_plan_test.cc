#include "data/order/sample_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/hash.h"
#include "data/order/sample_order.h"

namespace lockstep::data {
namespace {

// Weights of `count` sources, from 1 to `largest`.
std::vector<int64_t> some_weights(uint64_t seed, size_t count, int64_t largest) {
  std::vector<int64_t> weights;
  for (size_t i = 0; i < count; ++i)
    weights.push_back(1 +
                      static_cast<int64_t>(mix64(seed * 100 + i) % static_cast<uint64_t>(largest)));
  return weights;
}

TEST(Mixture, FiveThreeTwoIsExactOverEveryWindowOfTenThousand) {
  const std::vector<int64_t> weights = {5, 3, 2};
  const Mixture mixture(weights);
  for (const int64_t start : {int64_t{0}, int64_t{123'456'789'012'345}}) {
    std::vector<std::vector<int64_t>> before(3, {0});  // of each source, below each index
    constexpr int64_t kWindow = 10'000, kIndices = 130'000;
    for (int64_t i = 0; i < kIndices; ++i) {
      const size_t source = mixture.at(start + i).source;
      for (size_t d = 0; d < 3; ++d) before[d].push_back(before[d].back() + (d == source));
    }
    for (size_t d = 0; d < 3; ++d) {
      for (int64_t i = 0; i + kWindow <= kIndices; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_EQ(before[d][at + kWindow] - before[d][at], weights[d] * kWindow / 10) << i;
      }
      for (size_t i = 0; i + 7 < before[d].size(); ++i)  // and short ones are near
        ASSERT_LE(std::abs(static_cast<double>(before[d][i + 7] - before[d][i]) -
                           0.7 * static_cast<double>(weights[d])),
                  1.7);
    }
  }
}

TEST(Mixture, NumbersOfASourceHaveNoGapAndRoundsAreExact) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto weights = some_weights(seed, 1 + seed % 9, seed % 3 == 0 ? 4 : 60);
    const Mixture mixture(weights);
    int64_t divisor = 0;
    for (const int64_t w : weights) divisor = std::gcd(divisor, w);
    const int64_t sum = std::accumulate(weights.begin(), weights.end(), int64_t{0}) / divisor;
    std::vector<int64_t> next(weights.size(), 0);
    for (int64_t i = 0; i < 3 * sum; ++i) {
      ASSERT_EQ(mixture.counts(i), next) << "index " << i;
      const Mixture::Place place = mixture.at(i);
      ASSERT_EQ(place.number, next[place.source]++) << "index " << i;
      for (size_t d = 0; d < weights.size() && (i + 1) % sum == 0; ++d) {
        ASSERT_EQ(next[d], (i + 1) / sum * weights[d] / divisor);
      }
    }
  }
}

TEST(Mixture, EqualSourcesTakeTurns) {
  const Mixture mixture({7, 7, 7, 7});
  std::vector<size_t> sources;
  for (int64_t i = 0; i < 8; ++i) sources.push_back(mixture.at(i).source);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(sources[i], sources[i + 4]);
  std::sort(sources.begin(), sources.begin() + 4);
  EXPECT_EQ(std::vector(sources.begin(), sources.begin() + 4), (std::vector<size_t>{0, 1, 2, 3}));
}

TEST(Mixture, LargeNumbersDoNotOverflow) {
  const int64_t large = (int64_t{1} << 60) - 1;
  const Mixture mixture({large, large - 2, 1});
  const Mixture::Place place = mixture.at(int64_t{1} << 62);
  EXPECT_LT(place.source, 3u);
  EXPECT_GE(place.number, 0);
  EXPECT_LE(place.number, int64_t{1} << 62);
}

// These never change: an order that moved would change every run's losses.
TEST(Mixture, GoldenValues) {
  const Mixture mixture({5, 3, 2});
  std::string sources, numbers;
  for (int64_t i = 0; i < 20; ++i) {
    sources += static_cast<char>('0' + mixture.at(i).source);
    numbers += static_cast<char>('0' + mixture.at(i).number);
  }
  EXPECT_EQ(sources, "20102010102010201010");
  EXPECT_EQ(numbers, "00011213242536374859");
}

TEST(Mixture, TemperatureMakesWeightsMoreEven) {
  EXPECT_EQ(tempered({5, 3, 2}, 1), (std::vector<int64_t>{5, 3, 2}));
  EXPECT_EQ(tempered({100, 25, 1}, 2), (std::vector<int64_t>{1 << 20, 1 << 19, 104858}));
  EXPECT_EQ(tempered({1'000'000'000'000, 1}, 0.5), (std::vector<int64_t>{1 << 20, 1}));
  EXPECT_EQ(tempered({9, 1}, 1e9), (std::vector<int64_t>{1 << 20, 1 << 20}));
}

TEST(MixtureDeathTest, RefusesWeightsThatAreNone) {
  EXPECT_DEATH(Mixture({}), "at least one source");
  EXPECT_DEATH(Mixture({1, 0}), "weight 0");
  EXPECT_DEATH(Mixture({Mixture::kMaxWeight, 1}), "weight 1");
}

// What a sample is to a reader: source, document, offset in it.
class Corpus {
 public:
  Corpus() {
    for (size_t d = 0; d < kSamples.size(); ++d) {
      std::vector<int64_t> starts;
      for (int64_t at = 0; at < kSamples[d] * kSeqLen;) {
        starts.push_back(at);
        at += 1 + static_cast<int64_t>(mix64(starts.size() + 1000 * d) % 3000);
      }
      starts_.push_back(std::move(starts));
    }
  }
  static SamplePlan plan(uint64_t seed) {
    return SamplePlan({{kSamples[0], 5, seed}, {kSamples[1], 3, seed + 1}, {kSamples[2], 2, 7}});
  }
  // Source, document and offset of a global index, as one number.
  uint64_t at(const SamplePlan& plan, int64_t global_index) const {
    const SamplePlan::Place place = plan.at(global_index);
    const int64_t token = place.sample * kSeqLen;
    const auto& starts = starts_[place.source];
    const auto document = static_cast<size_t>(
        std::upper_bound(starts.begin(), starts.end(), token) - starts.begin() - 1);
    return mix64(place.source + 1) ^ mix64(document << 20) ^
           static_cast<uint64_t>(token - starts[document]);
  }

 private:
  static constexpr int64_t kSeqLen = 256;
  static constexpr std::array<int64_t, 3> kSamples = {300'007, 65'536, 4'099};
  std::vector<std::vector<int64_t>> starts_;  // of the documents of each source, in tokens
};

// Ranks 0 … W-1 compute slots in turn; now and then the run is killed and goes on, on another
// number of ranks, from the last checkpoint, with another planned length (which nothing asks for).
TEST(SamplePlan, AMillionSamplesAreTheSameForAnyWorldSizeKillsAndLength) {
  constexpr int64_t kSteps = 15'625, V = 16, B = 4;  // 10^6 samples
  const Corpus corpus;
  std::vector<uint64_t> alone(static_cast<size_t>(kSteps * V * B));
  const SamplePlan whole = Corpus::plan(42);
  for (size_t i = 0; i < alone.size(); ++i) alone[i] = corpus.at(whole, static_cast<int64_t>(i));
  for (uint64_t world = 1; world <= 16; ++world) {
    std::vector<uint64_t> stream(alone.size(), 0);
    int64_t saved = 0, generation = 0;
    for (int64_t step = 0; step < kSteps; ++generation) {
      // A process that starts afresh knows the seed and the step.
      const SamplePlan plan = Corpus::plan(42);
      const uint64_t drawn = mix64(world * 1000 + static_cast<uint64_t>(generation));
      const auto ranks = static_cast<int64_t>(generation % 2 == 0 ? world : 1 + drawn % 16);
      const int64_t killed_at = step + 1 + static_cast<int64_t>(drawn / 16 % 9000);
      for (; step < std::min(kSteps, killed_at); ++step) {
        for (int64_t rank = 0; rank < ranks; ++rank)
          for (int64_t slot = rank; slot < V; slot += ranks)
            for (int64_t row = 0; row < B; ++row) {
              const int64_t g = (step * V + slot) * B + row;
              const uint64_t there = corpus.at(plan, g);
              auto& seen = stream[static_cast<size_t>(g)];
              ASSERT_TRUE(seen == 0 || seen == there);  // what is done again is the same
              seen = there;
            }
        if (step % 100 == 0) saved = step;
      }
      if (step < kSteps) step = saved;
    }
    ASSERT_EQ(stream, alone) << "world size " << world;
  }
}

TEST(SamplePlan, EachSourceVisitsItsSamplesOnceAnEpoch) {
  const SamplePlan plan({{30, 5, 1}, {18, 3, 2}, {12, 2, 3}});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::vector<int>> visits = {std::vector<int>(30), std::vector<int>(18),
                                            std::vector<int>(12)};
    for (int64_t i = 0; i < 60; ++i) {
      const SamplePlan::Place place = plan.at(epoch * 60 + i);
      EXPECT_EQ(place.epoch, epoch);
      ++visits[place.source][static_cast<size_t>(place.sample)];
    }
    for (const auto& of_source : visits)
      for (const int count : of_source) EXPECT_EQ(count, 1);
  }
}

}  // namespace
}  // namespace lockstep::data
