#include "core/train/sampling/token_sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace lockstep::core {
namespace {

constexpr int kDraws = 4000;

// How often each token is drawn by evenly spaced numbers: exact, up to one draw.
std::map<int64_t, double> shares(const std::vector<float>& logits, const Sampling& sampling) {
  std::map<int64_t, double> of;
  for (int i = 0; i < kDraws; ++i)
    of[draw_token(logits, sampling, (i + 0.5) / kDraws)] += 1.0 / kDraws;
  return of;
}

TEST(DrawToken, TemperatureZero_TheFirstOfTheLikeliest) {
  EXPECT_EQ(draw_token(std::vector<float>{1, 3, -2, 3}, {.temperature = 0}, 0.99), 1);
  EXPECT_EQ(draw_token(std::vector<float>{-INFINITY, -4}, {.temperature = 0}, 0.0), 1);
  EXPECT_EQ(draw_token(std::vector<float>{1, 3}, {.temperature = 1e-40}, 0.0), 1);
}

TEST(DrawToken, Temperature_SharesAreThoseOfTheSoftmax) {
  const std::vector<float> logits{0, 1, 2, -1};
  for (const double temperature : {0.5, 1.0, 3.0}) {
    double total = 0;
    for (const float x : logits) total += std::exp(static_cast<double>(x) / temperature);
    const auto of = shares(logits, {.temperature = temperature});
    for (const auto& [id, share] : of)
      EXPECT_NEAR(
          share,
          std::exp(static_cast<double>(logits[static_cast<size_t>(id)]) / temperature) / total,
          2.0 / kDraws);
    EXPECT_EQ(of.size(), logits.size());
  }
}

TEST(DrawToken, TopK_OnlyTheLikeliestInTheirProportion) {
  const auto of = shares({0, 1, 2, 2, -1}, {.temperature = 1, .top_k = 2});
  ASSERT_EQ(of.size(), 2u);
  EXPECT_NEAR(of.at(2), 0.5, 2.0 / kDraws);
  EXPECT_NEAR(of.at(3), 0.5, 2.0 / kDraws);
  EXPECT_EQ(shares({5, 1, 2}, {.temperature = 1, .top_k = 1}).begin()->first, 0);
}

TEST(DrawToken, TopP_TheFewestThatReachIt) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits{std::log(4.0f), std::log(2.0f), 0, 0};
  const auto kept = [&](double top_p) {
    return shares(logits, {.temperature = 1, .top_p = top_p}).size();
  };
  EXPECT_EQ(kept(0.0), 1u);
  EXPECT_EQ(kept(0.49), 1u);
  EXPECT_EQ(kept(0.7), 2u);
  EXPECT_EQ(kept(0.8), 3u);
  EXPECT_EQ(kept(0.99), 4u);
  const auto of = shares(logits, {.temperature = 1, .top_p = 0.7});
  EXPECT_NEAR(of.at(0), 2.0 / 3, 2.0 / kDraws);
}

TEST(DrawToken, TopPAfterTopK_CountsAmongThoseThatAreLeft) {
  const std::vector<float> logits{std::log(4.0f), std::log(2.0f), 0, 0};
  // Of two the likelier one has two thirds.
  EXPECT_EQ(shares(logits, {.temperature = 1, .top_k = 2, .top_p = 0.66}).size(), 1u);
  EXPECT_EQ(shares(logits, {.temperature = 1, .top_k = 2, .top_p = 0.67}).size(), 2u);
}

TEST(DrawToken, ANucleusOfManyTokens_IsFoundWhole) {
  const std::vector<float> flat(5000, 1.0f);
  EXPECT_EQ(draw_token(flat, {.temperature = 1, .top_p = 0.9}, 0.99999), 4499);
  EXPECT_EQ(draw_token(flat, {.temperature = 1}, 0.99999), 4999);
  EXPECT_EQ(draw_token(flat, {.temperature = 1, .top_p = 0.9}, 0.0), 0);
}

TEST(TokenStream, DependsOnSeedPromptAndEqualOnesBefore) {
  const std::vector<int64_t> prompt{1, 2}, other{1, 3};
  const double drawn = TokenStream(42, prompt, 0).uniform(0);
  EXPECT_EQ(drawn, TokenStream(42, prompt, 0).uniform(0));
  EXPECT_NE(drawn, TokenStream(42, prompt, 0).uniform(1));
  EXPECT_NE(drawn, TokenStream(42, prompt, 1).uniform(0));
  EXPECT_NE(drawn, TokenStream(43, prompt, 0).uniform(0));
  EXPECT_NE(drawn, TokenStream(42, other, 0).uniform(0));
  for (int64_t n = 0; n < 100; ++n) {
    const double u = TokenStream(42, prompt, 0).uniform(n);
    EXPECT_TRUE(u >= 0 && u < 1) << u;
  }
}

}  // namespace
}  // namespace lockstep::core
