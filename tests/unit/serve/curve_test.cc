// Stretches of curves: smoothed, thinned, and no peak lost.
#include "cli/serve/curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<double> counted_x(size_t count) {
  std::vector<double> x(count);
  std::iota(x.begin(), x.end(), 1.0);
  return x;
}

TEST(Smoothing, AConstantStaysAndAStepIsApproached) {
  EXPECT_THAT(smoothed(std::vector<float>{2, 2, 2}, 0.9), ElementsAre(2, 2, 2));
  // m = 0.5 m + 0.5 y, over 1 - 0.5^n: (1 * 1) / 1, (0.25 + 1) ... by hand.
  EXPECT_THAT(smoothed(std::vector<float>{1, 3}, 0.5),
              ElementsAre(FloatNear(1, 1e-6F), FloatNear((0.25F + 1.5F) / 0.75F, 1e-6F)));
  const auto with_gap = smoothed(std::vector<float>{1, kNaN, 3}, 0.5);
  EXPECT_TRUE(std::isnan(with_gap[1]));
  EXPECT_FLOAT_EQ(with_gap[2], (0.25F + 1.5F) / 0.75F);
}

TEST(DrawCurve, FewPointsStayAsTheyAre) {
  const auto x = counted_x(4);
  const Curve curve = draw_curve(x, std::vector<float>{4, kNaN, 2, 1}, {.points = 10});
  EXPECT_THAT(curve.x, ElementsAre(1, 3, 4)) << "what is not finite is no point";
  EXPECT_THAT(curve.y, ElementsAre(4, 2, 1));
  EXPECT_EQ(curve.of, 3u);
  EXPECT_EQ(draw_curve({}, {}, {}).x.size(), 0u);
}

TEST(DrawCurve, ThinnedItKeepsPeaksAndEnds) {
  constexpr size_t kCount = 100'000;
  const auto x = counted_x(kCount);
  std::vector<float> y(kCount);
  for (size_t i = 0; i < kCount; ++i) y[i] = static_cast<float>(kCount - i);
  y[54'321] = 1e9F;
  y[77'777] = -1e9F;
  for (const size_t points : {4u, 5u, 100u, 999u, 5000u}) {
    const Curve curve = draw_curve(x, y, {.points = points});
    EXPECT_LE(curve.x.size(), points);
    EXPECT_GE(curve.x.size(), points - 3);
    EXPECT_EQ(curve.of, kCount);
    EXPECT_EQ(curve.x.front(), 1);
    EXPECT_EQ(curve.x.back(), kCount);
    EXPECT_TRUE(std::is_sorted(curve.x.begin(), curve.x.end()));
    EXPECT_EQ(std::count(curve.y.begin(), curve.y.end(), 1e9F), 1) << points;
    EXPECT_EQ(std::count(curve.y.begin(), curve.y.end(), -1e9F), 1) << points;
  }
}

TEST(DrawCurve, AStretchHasANeighbourOnEachSide) {
  const auto x = counted_x(10);
  const std::vector<float> y{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_THAT(draw_curve(x, y, {.from = 4, .to = 6}).x, ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(draw_curve(x, y, {.from = 4.2, .to = 4.4}).x, ElementsAre(4, 5));
  EXPECT_THAT(draw_curve(x, y, {.from = 9}).x, ElementsAre(8, 9, 10));
  EXPECT_THAT(draw_curve(x, y, {.to = 1}).x, ElementsAre(1, 2));
  EXPECT_THAT(draw_curve(x, y, {.from = 50}).x, ElementsAre(10));
}

// A zoom shows the curve that was smoothed from the run's first step on.
TEST(DrawCurve, IsSmoothedBeforeItIsCut) {
  const auto x = counted_x(4);
  const std::vector<float> y{1, 3, 1, 3};
  const Curve whole = draw_curve(x, y, {.smoothing = 0.5});
  const Curve part = draw_curve(x, y, {.from = 4, .smoothing = 0.5});
  EXPECT_EQ(part.y.back(), whole.y.back());
  EXPECT_NE(whole.y.back(), 3);
}

TEST(MeanOfStretch, LeavesOutWhatIsNotFinite) {
  const auto x = counted_x(4);
  EXPECT_EQ(mean_of_stretch(x, std::vector<float>{1, kNaN, 3, 100}, {.to = 3}), 2);
  EXPECT_TRUE(std::isnan(mean_of_stretch(x, std::vector<float>{1, 2, 3, 4}, {.from = 9})));
}

}  // namespace
}  // namespace lockstep::cli
