#include "base/elementary.h"

#include <limits>

#include "base/check.h"
#include "base/elementary.cuh"

namespace lockstep::elementary {
namespace {

using pairs::kLn2, pairs::Pair;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr auto kExp = pairs::inverses<4, 18>(pairs::factorial);  // of |x| <= ln(2)/2

// 2^k. Requires: -1022 <= k <= 1023.
constexpr double power_of_two(int64_t k) {
  return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52);
}

double pair_exp(Pair x) {
  if (x.hi > 710) return kInfinity;
  if (x.hi < -746) return 0;
  const double n = pairs::nearest_integer(x.hi * (1 / kLn2));
  const Pair r = (x + -n * kLn2) + pairs::rest_of_ln2() * -n;
  const Pair e = kExp(r);
  const auto k = static_cast<int64_t>(n);
  // In two factors, since 2^k itself may be no double.
  return (e.hi + e.lo) * power_of_two(k / 2) * power_of_two(k - k / 2);
}

}  // namespace

double exp(double x) {
  if (x != x) return x;
  return pair_exp({x, 0});
}

double log(double x) {
  if (x > 0 && x < kInfinity) return pairs::rounded(pairs::log(x));
  if (x == 0) return -kInfinity;
  return x > 0 ? x : kNan;
}

double pow(double x, double y) {
  LOCKSTEP_CHECK(x >= 0 && x < kInfinity && y - y == 0, "pow(", x, ", ", y, ")");
  if (y == 0) return 1;
  if (x == 0) return y > 0 ? 0 : kInfinity;
  if (x == 1) return 1;
  const Pair log_x = pairs::log(x);
  if (const double about = log_x.hi * y; about > 710 || about < -746)
    return about > 0 ? kInfinity : 0;
  return pair_exp(log_x * y);
}

SinCos sin_cos(double x) {
  if (!(x >= -pairs::kLargestAngle && x <= pairs::kLargestAngle)) return {kNan, kNan};
  return pairs::sin_cos(x);
}

double cos(double x) { return sin_cos(x).cos; }

}  // namespace lockstep::elementary
