// Errors are measured with long double, whose functions have 11 bits more (x86-64) or 60 (Arm).
#include "base/elementary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/hash.h"

namespace lockstep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// `count` numbers of (0, 1].
std::vector<double> uniform(int count, uint64_t key) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i)
    out.push_back((static_cast<double>(philox(key, 0, static_cast<uint64_t>(i)).word[0]) + 1) /
                  4294967296.0);
  return out;
}

// |got - exact| in units in the last place of `got`.
double error_ulps(double got, long double exact) {
  const double ulp = std::nextafter(std::abs(got), kInfinity) - std::abs(got);
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact) /
                             static_cast<long double>(ulp));
}

double sin_of(double x) { return elementary::sin_cos(x).sin; }

double worst(const std::vector<double>& arguments, double (*ours)(double),
             const std::function<long double(long double)>& exact) {
  double most = 0;
  for (const double x : arguments)
    most = std::max(most, error_ulps(ours(x), exact(static_cast<long double>(x))));
  return most;
}

std::vector<double> scaled(std::vector<double> numbers, double factor, double offset = 0) {
  for (double& x : numbers) x = x * factor + offset;
  return numbers;
}

constexpr int kCount = 20'000;
constexpr double kNearest = 0.503;  // half a unit, and what is claimed above it

TEST(Elementary, ErrorsStayWithinTheClaim) {
  const auto exact_log = [](long double x) { return std::log(x); };
  const auto exact_exp = [](long double x) { return std::exp(x); };
  const auto exact_sin = [](long double x) { return std::sin(x); };
  const auto exact_cos = [](long double x) { return std::cos(x); };
  EXPECT_LT(worst(uniform(kCount, 1), elementary::log, exact_log), kNearest);
  EXPECT_LT(worst(scaled(uniform(kCount, 2), 1e-3, 1), elementary::log, exact_log), kNearest);
  EXPECT_LT(worst(scaled(uniform(kCount, 3), 1e300), elementary::log, exact_log), kNearest);
  EXPECT_LT(worst(scaled(uniform(kCount, 4), 1e-310), elementary::log, exact_log), kNearest);
  EXPECT_LT(worst(scaled(uniform(kCount, 5), -1), elementary::exp, exact_exp), kNearest);
  EXPECT_LT(worst(scaled(uniform(kCount, 6), 1400, -700), elementary::exp, exact_exp), kNearest);
  for (const double range : {1.0, 6.3, 5000.0, 0x1p23}) {
    const auto angles = scaled(uniform(kCount, 7), range);
    EXPECT_LT(worst(angles, sin_of, exact_sin), kNearest) << range;
    EXPECT_LT(worst(angles, elementary::cos, exact_cos), kNearest) << range;
    EXPECT_LT(worst(scaled(angles, -1), sin_of, exact_sin), kNearest) << range;
  }
}

// Multiples of pi/2 as doubles: what is left of them is the rounding of the multiple.
TEST(Elementary, SmallSinesOfLargeAnglesAreRight) {
  for (int n = 1; n < 5'000'000; n = n * 3 + 1) {
    const double x = n * 1.5707963267948966;
    EXPECT_LT(error_ulps(sin_of(x), std::sin(static_cast<long double>(x))), 0.6) << n;
    EXPECT_LT(error_ulps(elementary::cos(x), std::cos(static_cast<long double>(x))), 0.6) << n;
  }
}

TEST(Elementary, PowersStayWithinTheClaim) {
  const auto bases = uniform(kCount, 8), exponents = scaled(uniform(kCount, 9), 200, -100);
  double most = 0;
  for (size_t i = 0; i < bases.size(); ++i) {
    const double got = elementary::pow(bases[i], exponents[i]);
    if (got > 1e-300 && got < 1e300)
      most = std::max(most, error_ulps(got, std::pow(static_cast<long double>(bases[i]),
                                                     static_cast<long double>(exponents[i]))));
  }
  EXPECT_LT(most, 0.51);
  for (const double x : bases) EXPECT_EQ(elementary::pow(x, 1), x);
  for (const double x : {3.0, 10.0, 500000.0}) EXPECT_EQ(elementary::pow(x, 2), x * x);
}

TEST(Elementary, WhatIsNoNumberPasses) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto function : {elementary::exp, elementary::log, sin_of, elementary::cos})
    EXPECT_TRUE(std::isnan(function(nan)));
  EXPECT_EQ(elementary::exp(kInfinity), kInfinity);
  EXPECT_EQ(elementary::exp(710), kInfinity);
  EXPECT_EQ(elementary::exp(-kInfinity), 0);
  EXPECT_EQ(elementary::exp(0), 1);
  EXPECT_GT(elementary::exp(-745), 0);  // below a normal number
  EXPECT_EQ(elementary::log(0), -kInfinity);
  EXPECT_EQ(elementary::log(1), 0);
  EXPECT_EQ(elementary::log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(elementary::log(-1)));
  EXPECT_TRUE(std::isnan(sin_of(kInfinity)));
  EXPECT_TRUE(std::isnan(elementary::cos(1e9)));
  EXPECT_EQ(sin_of(0), 0);
  EXPECT_EQ(elementary::cos(0), 1);
}

TEST(Elementary, PowersAtTheEdgesOfTheirRange) {
  EXPECT_EQ(elementary::pow(0, 3), 0);
  EXPECT_EQ(elementary::pow(0, 0), 1);
  EXPECT_EQ(elementary::pow(0, -1), kInfinity);
  EXPECT_EQ(elementary::pow(0.9, 1e6), 0);
  EXPECT_EQ(elementary::pow(0.9, -1e6), kInfinity);
  EXPECT_EQ(elementary::pow(1, 1e300), 1);
  EXPECT_DEATH(elementary::pow(-1, 0.5), "pow");
}

// Of other bits, curves of one identity would differ.
TEST(Elementary, TheBitsAreTheSameOnEveryHost) {
  std::vector<double> results;
  for (const double u : uniform(10'000, 10))
    for (const double y : {elementary::log(u), elementary::exp(-u), sin_of(6.3 * u),
                           elementary::cos(3000 * u), elementary::pow(u, 0.125)})
      results.push_back(y);
  EXPECT_EQ(xxh3_64(std::as_bytes(std::span(results))), 2302329640187982350u);
}

}  // namespace
}  // namespace lockstep
