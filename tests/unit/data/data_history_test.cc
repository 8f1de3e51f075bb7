// What was drawn, counted one by one; what a change of the data says.
#include "data/loader/data_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/text.h"
#include "data/order/sample_plan.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char *kA = "aaaa", *kB = "bbbb", *kC = "cccc";

TEST(DataHistory, WhatWasDrawnIsWhatTheOrderSays) {
  const std::vector<DataStretch> stretches = {
      {0, 12, 64, "5*aaaa,3*bbbb"}, {7, 6, 128, "2*bbbb,3*cccc"}, {31, 6, 32, "cccc"}};
  const std::vector<std::vector<std::pair<std::string, int64_t>>> sources = {
      {{kA, 5}, {kB, 3}}, {{kB, 2}, {kC, 3}}, {{kC, 1}}};
  std::map<std::string, std::pair<int64_t, int64_t>> counted;  // samples, tokens
  for (int64_t step = 0; step < 40; ++step) {
    const size_t s = step < 7 ? 0 : step < 31 ? 1 : 2;
    std::vector<int64_t> weights;
    for (const auto& [hash, weight] : sources[s]) weights.push_back(weight);
    const Mixture mixture(weights);
    const int64_t rows = stretches[s].samples_per_step;
    for (int64_t row = step * rows; row < (step + 1) * rows; ++row) {
      auto& [samples, tokens] = counted[sources[s][mixture.at(row).source].first];
      ++samples;
      tokens += stretches[s].seq_len;
    }
  }
  const auto found = drawn(stretches, 40);
  ASSERT_EQ(found.size(), 3u);
  for (const Drawn& d : found) {
    EXPECT_EQ(d.samples, counted[d.source].first) << d.source;
    EXPECT_EQ(d.tokens, counted[d.source].second) << d.source;
  }
  EXPECT_THAT(drawn(stretches, 31).size(), 3u);
  EXPECT_EQ(drawn({stretches[0]}, 0)[0].samples, 0);
}

TEST(DataHistory, TheNewOrderStartsAtTheSampleThatItDrawsFirst) {
  const DataStretch stretch{10, 12, 64, "5*aaaa,3*bbbb"};
  const Mixture mixture({5, 3});
  std::map<size_t, int64_t> first;
  for (int64_t row = 120; first.size() < 2; ++row) {
    const auto place = mixture.at(row);
    first.try_emplace(place.source, place.number);
  }
  const auto starts = starts_of(stretch);
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[0].sample, first[0]);
  EXPECT_EQ(starts[1].sample, first[1]);
  EXPECT_EQ(starts[1].source, kB);
}

TEST(DataHistory, GoingOnUnchangedSaysNothing) {
  std::vector<DataStretch> stretches;
  EXPECT_THAT(go_on_with(stretches, {0, 8, 64, kA}, {}, OnDataChange::kJump), IsEmpty());
  EXPECT_THAT(go_on_with(stretches, {50, 8, 64, kA}, {}, OnDataChange::kJump), IsEmpty());
  EXPECT_EQ(stretches.size(), 1u);
  EXPECT_EQ(stretches[0].first_step, 0);
}

TEST(DataHistory, AChangeSaysWhatWasDrawnAndWhereTheNewOrderStarts) {
  std::vector<DataStretch> stretches = {{0, 8, 64, "3*aaaa,1*bbbb"}};
  // 16,001 tokens make 125 samples of 128.
  const std::vector<DataSource> sources = {{"data/web", kA, 16'001}, {"data/code", kC, 16'001}};
  const auto lines =
      go_on_with(stretches, {100, 8, 128, "1*aaaa,1*cccc"}, sources, OnDataChange::kJump);
  EXPECT_THAT(
      lines,
      ElementsAre(
          "the data change after step 100: before, 8 samples of 64 tokens a step from "
          "3*aaaa,1*bbbb; from now on, 8 samples of 128 tokens a step from 1*aaaa,1*cccc",
          "  drawn so far from data/web (aaaa): 600 samples, 38,400 tokens",
          "  drawn so far from bbbb: 200 samples, 12,800 tokens",
          "  from now on data/web (aaaa): the next sample is number 400, place 25 of 125 in epoch "
          "3; skipped of its order: 400 samples, 51,200 tokens; samples that were drawn in the old "
          "order may come again",
          "  from now on data/code (cccc): the next sample is number 400, place 25 of 125 in "
          "epoch 3; skipped of its order: 400 samples, 51,200 tokens; samples that were drawn in "
          "the old order may come again"));
  ASSERT_EQ(stretches.size(), 2u);
  EXPECT_EQ(stretches[1].first_step, 100);
  // Changed again before a step was made: the stretch between drew nothing.
  EXPECT_THAT(go_on_with(stretches, {100, 8, 256, kA}, {}, OnDataChange::kJump),
              testing::Contains(HasSubstr("bbbb: 200 samples, 12,800 tokens")));
  ASSERT_EQ(stretches.size(), 2u);
  EXPECT_EQ(stretches[1].seq_len, 256);
}

// The place in the order is the number of the step times the samples of a step.
TEST(DataHistory, AnotherBatchSaysWhatIsPassedOverOrDrawnAgain) {
  const std::vector<DataStretch> begun = {{0, 8, 128, kA}};
  std::vector<DataStretch> larger = begun, smaller = begun, joined = begun;
  EXPECT_THAT(go_on_with(larger, {1350, 16, 128, kA}, {}, OnDataChange::kJump),
              testing::Contains("  from now on aaaa: the next sample is number 21,600; skipped: "
                                "10,800 samples, 1,382,400 tokens"));
  EXPECT_THAT(go_on_with(smaller, {1350, 4, 128, kA}, {}, OnDataChange::kJump),
              testing::Contains("  from now on aaaa: the next sample is number 5,400; drawn "
                                "again: 5,400 samples, 691,200 tokens"));
  // Half of the samples come from a source that nothing was drawn of.
  const auto lines = go_on_with(joined, {100, 8, 128, "1*aaaa,1*cccc"}, {}, OnDataChange::kJump);
  EXPECT_THAT(lines, testing::Contains("  from now on aaaa: the next sample is number 400; drawn "
                                       "again: 400 samples, 51,200 tokens"));
  EXPECT_THAT(lines, testing::Contains("  from now on cccc: the next sample is number 400; "
                                       "skipped of its order: 400 samples, 51,200 tokens"));
}

// Draws sample by sample what stretches say; with each source's numbers in the order of the draw.
std::map<std::string, std::vector<int64_t>> numbers(const std::vector<DataStretch>& stretches,
                                                    int64_t end_step) {
  std::map<std::string, std::vector<int64_t>> all;
  for (size_t i = 0; i < stretches.size(); ++i) {
    const DataStretch& s = stretches[i];
    const int64_t end = i + 1 < stretches.size() ? stretches[i + 1].first_step : end_step;
    std::vector<std::string> hashes;
    std::vector<int64_t> weights;
    for (const std::string& word : split(s.sources, ',')) {
      const size_t star = word.find('*');
      hashes.push_back(star == word.npos ? word : word.substr(star + 1));
      weights.push_back(star == word.npos ? 1 : std::stoll(word));
    }
    const Mixture mixture(weights);
    const SampleOrigin origin = origin_of(s);
    const int64_t rows = s.samples_per_step;
    for (int64_t row = (s.first_step - origin.first_step) * rows;
         row < (end - origin.first_step) * rows; ++row) {
      const auto place = mixture.at(row);
      all[hashes[place.source]].push_back(
          place.number + (origin.before.empty() ? 0 : origin.before[place.source]));
    }
  }
  return all;
}

// 0, 1, 2, …: each sample once.
void expect_each_once(const std::map<std::string, std::vector<int64_t>>& drawn) {
  for (const auto& [source, samples] : drawn)
    for (size_t i = 0; i < samples.size(); ++i)
      ASSERT_EQ(samples[i], static_cast<int64_t>(i)) << source;
}

const std::vector<DataSource> kSources = {{"data/a", kA, 100'001}, {"data/b", kB, 100'001}};

TEST(DataHistory, AnArrayOfBatchesIsNotContinuedAndThatIsSaid) {
  std::vector<DataStretch> stretches = {{0, 8, 64, kA}};
  const auto lines = go_on_with(stretches, {50, 16, 64, kA}, {}, OnDataChange::kContinue);
  EXPECT_THAT(lines, testing::Contains(HasSubstr("does not apply to an array of batches")));
  EXPECT_TRUE(stretches.back().before.empty());
}

TEST(DataHistory, ContinuingDrawsEachSampleOnceThroughChangesOfBatchAndMixture) {
  std::vector<DataStretch> one = {{0, 8, 64, kA}};
  const auto lines = go_on_with(one, {50, 16, 64, kA}, kSources, OnDataChange::kContinue);
  EXPECT_THAT(lines, testing::Contains("  from now on data/a (aaaa): the next sample is number "
                                       "400, place 400 of 1,562 in epoch 0"));
  go_on_with(one, {77, 3, 64, kA}, kSources, OnDataChange::kContinue);
  expect_each_once(numbers(one, 100));

  std::vector<DataStretch> mixed = {{0, 12, 64, "5*aaaa,3*bbbb"}};
  go_on_with(mixed, {7, 5, 64, "5*aaaa,3*bbbb"}, kSources, OnDataChange::kContinue);
  go_on_with(mixed, {20, 5, 64, "1*bbbb,7*aaaa"}, kSources, OnDataChange::kContinue);
  go_on_with(mixed, {31, 6, 64, "1*aaaa,1*cccc"}, kSources, OnDataChange::kContinue);
  go_on_with(mixed, {43, 6, 64, "2*bbbb,1*cccc"}, kSources, OnDataChange::kContinue);
  const auto all = numbers(mixed, 60);
  EXPECT_EQ(all.size(), 3u);
  expect_each_once(all);
  for (const Drawn& d : drawn(mixed, 60))
    EXPECT_EQ(d.samples, static_cast<int64_t>(all.at(d.source).size())) << d.source;
}

TEST(DataHistory, ContinuingUnchangedAfterAChangeKeepsItsPlace) {
  std::vector<DataStretch> stretches = {{0, 8, 64, kA}};
  go_on_with(stretches, {50, 16, 64, kA}, kSources, OnDataChange::kContinue);
  for (const auto on_change : {OnDataChange::kJump, OnDataChange::kContinue})
    EXPECT_THAT(go_on_with(stretches, {60, 16, 64, kA}, kSources, on_change), IsEmpty());
  ASSERT_EQ(stretches.size(), 2u);
  EXPECT_EQ(stretches[1].before, std::vector<int64_t>{400});
  // Back to the first batch before a step was made: as if nothing had been.
  std::vector<DataStretch> undone = {{0, 8, 64, kA}};
  go_on_with(undone, {50, 16, 64, kA}, kSources, OnDataChange::kContinue);
  go_on_with(undone, {50, 8, 64, kA}, kSources, OnDataChange::kContinue);
  expect_each_once(numbers(undone, 80));
}

TEST(DataHistory, ContinuingGoesOnBehindTheFurthestSampleAfterAJump) {
  std::vector<DataStretch> stretches = {{0, 8, 64, kA}};
  go_on_with(stretches, {50, 16, 64, kA}, kSources, OnDataChange::kJump);  // 400 to 800
  go_on_with(stretches, {60, 4, 64, kA}, kSources, OnDataChange::kJump);   // back to 240
  go_on_with(stretches, {70, 8, 64, kA}, kSources, OnDataChange::kContinue);
  EXPECT_EQ(stretches.back().before, std::vector<int64_t>{960});
  // A jump counts from the start of the run again, as if it had always been so.
  go_on_with(stretches, {80, 4, 64, kA}, kSources, OnDataChange::kJump);
  EXPECT_EQ(starts_of(stretches.back())[0].sample, 320);
}

TEST(DataHistory, AtAnotherLengthAsManyTokensLieBehind) {
  std::vector<DataStretch> stretches = {{0, 8, 64, kA}};
  const auto lines = go_on_with(stretches, {50, 8, 128, kA}, kSources, OnDataChange::kContinue);
  EXPECT_THAT(
      lines,
      testing::Contains(
          "  from now on data/a (aaaa): the next sample is number 200, place 200 of 781 in epoch "
          "0; skipped of its order: as many tokens as were drawn, but not the same ones"));
  go_on_with(stretches, {60, 8, 64, kA}, kSources, OnDataChange::kContinue);
  EXPECT_EQ(stretches.back().before, std::vector<int64_t>{(200 + 80) * 2});
}

TEST(DataHistory, AnArrayOfBatchesIsNeverContinued) {
  std::vector<DataStretch> stretches = {{0, 8, 64, kA}};
  go_on_with(stretches, {50, 8, 64, kB}, {}, OnDataChange::kContinue);
  EXPECT_TRUE(stretches.back().before.empty());
}

}  // namespace
}  // namespace lockstep::data
