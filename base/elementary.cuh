// The arithmetic of base/elementary.h, constexpr and with tables inside of functions, so that CUDA
// kernels compile it as well. Each function reduces its argument to a short interval and adds up a
// series there: its first terms are pairs, the others so small that their rounding hardly moves it.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/elementary.h"

namespace lockstep::elementary::pairs {

// hi + lo, where |lo| is at most half a unit in the last place of hi.
struct Pair {
  double hi, lo;
};

// Requires: |a| >= |b|, or a == 0.
constexpr Pair ordered_sum(double a, double b) {
  const double s = a + b;
  return {s, b - (s - a)};
}

constexpr Pair sum(double a, double b) {
  const double s = a + b, b_part = s - a;
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

// c[0] + c[1] x + …, the first `Wide` coefficients in pairs.
template <int Wide, int N>
struct Series {
  static_assert((N - Wide) % 2 == 0);
  std::array<Pair, N> c;

  constexpr Pair operator()(Pair x) const {
    // Every second one at once: half as long a chain.
    const double squared = x.hi * x.hi;
    double even = c[N - 2].hi, odd = c[N - 1].hi;
    for (int i = N - 2; i >= Wide + 2; i -= 2) {
      even = even * squared + c[i - 2].hi;
      odd = odd * squared + c[i - 1].hi;
    }
    Pair p = x * (odd * x.hi + even);
    for (int i = Wide; i-- > 1;) p = (p + c[i]) * x;
    return p + c[0];
  }
};

// The series of 1 / denominator(i).
template <int Wide, int N, typename F>
constexpr Series<Wide, N> inverses(F denominator) {
  Series<Wide, N> s{};
  for (int i = 0; i < N; ++i) s.c[i] = quotient(1.0, {denominator(i), 0});
  return s;
}

// Up to 22! a double holds it; what comes after is far below a double's rounding of the sum.
constexpr double factorial(int n) { return n < 2 ? 1.0 : n * factorial(n - 1); }
constexpr double sign(int i) { return i % 2 == 0 ? 1 : -1; }
constexpr double rounded(Pair p) { return p.hi + p.lo; }

// Requires: |x| < 2^51. To the nearest integer: adding leaves no room for a fraction.
constexpr double nearest_integer(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

// ln(2) and the rest of it. The first part times 11 bits is exact.
constexpr double kLn2 = 0x1.62e42fefa3800p-1;
constexpr Pair rest_of_ln2() { return {0x1.ef35793c76730p-45, 0x1.f97b57a079a19p-103}; }

// Requires: 0 < x < inf. With x = 2^k m, m in [sqrt(1/2), sqrt(2)):
// log(x) = k ln(2) + 2 atanh((m - 1) / (m + 1)).
constexpr Pair log(double x) {
  constexpr auto kSqrtHalf = std::bit_cast<uint64_t>(0x1.6a09e667f3bcdp-1);
  constexpr uint64_t kExponent1 = uint64_t{1023} << 52, kExponent52 = uint64_t{1075} << 52;
  const bool subnormal = x < 0x1p-1022;
  const uint64_t above = std::bit_cast<uint64_t>(subnormal ? x * 0x1p54 : x) - kSqrtHalf;
  const double m = std::bit_cast<double>(above % (uint64_t{1} << 52) + kSqrtHalf);
  // 2^52 + k + 1023. Through bits, since few CPUs make doubles of vectors of integers.
  const auto moved_k = std::bit_cast<double>(kExponent52 + ((above + kExponent1) >> 52));
  const double k = moved_k - 0x1p52 - (subnormal ? 1077 : 1023);
  const Pair s = quotient(m - 1.0, sum(m, 1.0));
  // atanh(s) / s = 1 + t/3 + t^2/5 + …, t = s^2 <= (3 - 2 sqrt(2))^2
  constexpr auto kAtanh = inverses<3, 15>([](int i) { return 2.0 * i + 1; });
  const Pair of_m = kAtanh(s * s) * s * 2.0;
  return Pair{k * kLn2, 0} + (rest_of_ln2() * k + of_m);
}

// Requires: |x| <= kLargestAngle.
constexpr double kLargestAngle = 0x1p23;
constexpr SinCos sin_cos(double x) {
  // pi/2. The first part times 23 bits is exact.
  constexpr std::array kHalfPi = {0x1.921fb54800000p+0, -0x1.de973dc800000p-31,
                                  -0x1.9d9cceb800000p-62, -0x1.1fc8f8c800000p-93,
                                  -0x1.dadfb63eeeb30p-124};
  const double n = nearest_integer(x * 0x1.45f306dc9c883p-1);
  Pair angle{x, 0};  // less n pi/2: in [-pi/4, pi/4]
  for (const double part : kHalfPi) angle = angle + -n * part;
  // sin(x) / x and cos(x), in x^2.
  constexpr auto kSine = inverses<2, 12>([](int i) { return sign(i) * factorial(2 * i + 1); });
  constexpr auto kCosine = inverses<3, 13>([](int i) { return sign(i) * factorial(2 * i); });
  const Pair t = angle * angle;
  const double s = rounded(kSine(t) * angle), c = rounded(kCosine(t));
  const auto quadrant = std::bit_cast<uint64_t>(n + 0x1.8p52);  // in its lowest bits
  const SinCos turned = (quadrant & 1) == 0 ? SinCos{s, c} : SinCos{c, s};
  return {(quadrant & 2) == 0 ? turned.sin : -turned.sin,
          ((quadrant + 1) & 2) == 0 ? turned.cos : -turned.cos};
}

}  // namespace lockstep::elementary::pairs
