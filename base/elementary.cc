// Each function reduces its argument to a short interval, and adds up a series there. The first
// terms of a series are pairs; the others are so small that their rounding hardly moves the sum.
#include "base/elementary.h"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "base/check.h"

namespace lockstep::elementary {
namespace {

// hi + lo, where |lo| is at most half a unit in the last place of hi.
struct Pair {
  double hi, lo;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Requires: |a| >= |b|, or a == 0.
constexpr Pair ordered_sum(double a, double b) {
  const double s = a + b;
  return {s, b - (s - a)};
}

constexpr Pair sum(double a, double b) {
  const double s = a + b;
  const double b_part = s - a;
  return {s, (a - (s - b_part)) + (b - b_part)};
}

constexpr Pair halves(double a) {
  const double c = a * 134217729.0;  // 2^27 + 1
  const double hi = c - (c - a);
  return {hi, a - hi};
}

constexpr Pair product(double a, double b) {
  const double p = a * b;
  const Pair x = halves(a), y = halves(b);
  return {p, ((x.hi * y.hi - p) + x.hi * y.lo + x.lo * y.hi) + x.lo * y.lo};
}

constexpr Pair operator+(Pair a, double b) {
  const Pair s = sum(a.hi, b);
  return ordered_sum(s.hi, s.lo + a.lo);
}

constexpr Pair operator+(Pair a, Pair b) {
  const Pair s = sum(a.hi, b.hi), t = sum(a.lo, b.lo);
  const Pair u = ordered_sum(s.hi, s.lo + t.hi);
  return ordered_sum(u.hi, u.lo + t.lo);
}

constexpr Pair operator*(Pair a, Pair b) {
  const Pair p = product(a.hi, b.hi);
  return ordered_sum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

constexpr Pair operator*(Pair a, double b) {
  const Pair p = product(a.hi, b);
  return ordered_sum(p.hi, p.lo + a.lo * b);
}

constexpr Pair quotient(double a, Pair b) {
  const double inverse = 1.0 / b.hi, q = a * inverse;
  const Pair p = b * q;
  return ordered_sum(q, ((a - p.hi) - p.lo) * inverse);
}

constexpr Pair inverse(double n) { return quotient(1.0, {n, 0}); }

// c[0] + c[1] x + … of a series whose coefficients are c[i] = 1 / denominators[i]: the first `Wide`
// of them in pairs.
template <size_t Wide, size_t N>
struct Series {
  static_assert((N - Wide) % 2 == 0);
  std::array<Pair, N> c;

  constexpr Pair operator()(Pair x) const {
    // Every second one at once: half as long a chain.
    const double squared = x.hi * x.hi;
    double even = c[N - 2].hi, odd = c[N - 1].hi;
    for (size_t i = N - 2; i >= Wide + 2; i -= 2) {
      even = even * squared + c[i - 2].hi;
      odd = odd * squared + c[i - 1].hi;
    }
    Pair p = x * (odd * x.hi + even);
    for (size_t i = Wide; i-- > 1;) p = (p + c[i]) * x;
    return p + c[0];
  }
};

// 1 / (first + i)! for i = 0, stride, …, with alternating signs if sign is -1.
template <size_t Wide, size_t N>
constexpr Series<Wide, N> factorials(int first, int stride, double sign) {
  Series<Wide, N> s{};
  double factorial = 1, signed_one = 1;
  for (int i = 2; i <= first; ++i) factorial *= i;
  for (size_t k = 0; k < N; ++k, signed_one *= sign) {
    s.c[k] = inverse(factorial * signed_one);
    for (int i = 1; i <= stride; ++i) factorial *= first + static_cast<int>(k) * stride + i;
  }
  return s;
}

// atanh(s) / s = 1 + t/3 + t^2/5 + …, t = s^2.
template <size_t Wide, size_t N>
constexpr Series<Wide, N> odd_inverses() {
  Series<Wide, N> s{};
  for (size_t k = 0; k < N; ++k) s.c[k] = inverse(static_cast<double>(2 * k + 1));
  return s;
}

// n!: up to 22! a double holds it; what comes after is far below a double's rounding of the sum.
constexpr auto kExp = factorials<4, 18>(0, 1, 1);    // of |x| <= ln(2)/2
constexpr auto kSine = factorials<2, 12>(1, 2, -1);  // sin(x)/x in x^2, |x| <= pi/4
constexpr auto kCosine = factorials<3, 13>(0, 2, -1);
constexpr auto kAtanh = odd_inverses<3, 15>();  // t <= (3 - 2 sqrt(2))^2

// ln(2) and pi/2. The first part of ln(2) times 11 bits, and of pi/2 times 23, is exact.
constexpr double kLn2 = 0x1.62e42fefa3800p-1;
constexpr Pair kLn2Rest{0x1.ef35793c76730p-45, 0x1.f97b57a079a19p-103};
constexpr double kHalfPi[] = {0x1.921fb54800000p+0, -0x1.de973dc800000p-31, -0x1.9d9cceb800000p-62,
                              -0x1.1fc8f8c800000p-93, -0x1.dadfb63eeeb30p-124};
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kLargestAngle = 0x1p23;

// Requires: |x| < 2^51. To the nearest integer: adding leaves no room for a fraction.
constexpr double nearest_integer(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

// 2^k. Requires: -1022 <= k <= 1023.
constexpr double power_of_two(int64_t k) {
  return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52);
}

// Requires: 0 < x < inf. With x = 2^k m, m in [sqrt(1/2), sqrt(2)):
// log(x) = k ln(2) + 2 atanh((m - 1) / (m + 1)).
Pair pair_log(double x) {
  int64_t k = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    k = -54;
  }
  constexpr uint64_t kSqrtHalf = std::bit_cast<uint64_t>(0x1.6a09e667f3bcdp-1);
  const uint64_t above = std::bit_cast<uint64_t>(x) - kSqrtHalf;
  k += static_cast<int64_t>(above) >> 52;
  const double m = std::bit_cast<double>((above & ((uint64_t{1} << 52) - 1)) + kSqrtHalf);
  const Pair s = quotient(m - 1.0, sum(m, 1.0));
  const Pair of_m = kAtanh(s * s) * s * 2.0;
  const double n = static_cast<double>(k);
  return Pair{n * kLn2, 0} + (kLn2Rest * n + of_m);
}

double pair_exp(Pair x) {
  if (x.hi > 710) return kInfinity;
  if (x.hi < -746) return 0;
  const double n = nearest_integer(x.hi * (1 / kLn2));
  const Pair r = (x + -n * kLn2) + kLn2Rest * -n;
  const Pair e = kExp(r);
  const auto k = static_cast<int64_t>(n);
  // In two factors, since 2^k itself may be no double.
  return (e.hi + e.lo) * power_of_two(k / 2) * power_of_two(k - k / 2);
}

// The angle less a multiple of pi/2, in [-pi/4, pi/4], and that multiple modulo 4.
struct Reduced {
  Pair angle;
  int64_t quadrant;
};

// Requires: |x| <= kLargestAngle.
Reduced reduced(double x) {
  const double n = nearest_integer(x * kTwoOverPi);
  Pair r{x, 0};
  for (const double part : kHalfPi) r = r + -n * part;
  return {r, static_cast<int64_t>(n) & 3};
}

double rounded(Pair p) { return p.hi + p.lo; }

}  // namespace

double exp(double x) {
  if (x != x) return x;
  return pair_exp({x, 0});
}

double log(double x) {
  if (x > 0 && x < kInfinity) return rounded(pair_log(x));
  if (x == 0) return -kInfinity;
  return x > 0 ? x : kNan;
}

double pow(double x, double y) {
  LOCKSTEP_CHECK(x >= 0 && x < kInfinity && y - y == 0, "pow(", x, ", ", y, ")");
  if (y == 0) return 1;
  if (x == 0) return y > 0 ? 0 : kInfinity;
  if (x == 1) return 1;
  const Pair log_x = pair_log(x);
  if (const double about = log_x.hi * y; about > 710 || about < -746)
    return about > 0 ? kInfinity : 0;
  return pair_exp(log_x * y);
}

SinCos sin_cos(double x) {
  if (!(x >= -kLargestAngle && x <= kLargestAngle)) return {kNan, kNan};
  const Reduced at = reduced(x);
  const Pair t = at.angle * at.angle;
  const double s = rounded(kSine(t) * at.angle), c = rounded(kCosine(t));
  switch (at.quadrant) {
    case 0: return {s, c};
    case 1: return {c, -s};
    case 2: return {-s, -c};
    default: return {-c, s};
  }
}

double cos(double x) { return sin_cos(x).cos; }

}  // namespace lockstep::elementary
