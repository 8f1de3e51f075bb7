#include "cli/serve/curve.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace lockstep::cli {
namespace {

// The points of the stretch that have a finite y, and one neighbour on each side.
std::vector<size_t> points_of_stretch(std::span<const double> x, std::span<const float> y,
                                      const CurveWish& wish) {
  std::vector<size_t> points;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(y[i])) continue;
    if (x[i] < wish.from) points.clear();
    points.push_back(i);
    if (x[i] > wish.to) break;
  }
  return points;
}

std::vector<size_t> thinned(const std::vector<size_t>& points, std::span<const float> y,
                            size_t most) {
  if (points.size() <= most) return points;
  std::vector<size_t> kept{points.front()};
  // First and last stay; what is between is cut into parts, each of which gives two.
  const size_t inner = points.size() - 2, parts = (most - 2) / 2;
  const auto smaller = [&](size_t a, size_t b) { return y[a] < y[b]; };
  for (size_t part = 0; part < parts; ++part) {
    const auto begin = points.begin() + 1 + static_cast<int64_t>(part * inner / parts);
    const auto end = points.begin() + 1 + static_cast<int64_t>((part + 1) * inner / parts);
    const auto [low, high] = std::minmax_element(begin, end, smaller);
    kept.push_back(std::min(*low, *high));
    if (*low != *high) kept.push_back(std::max(*low, *high));
  }
  kept.push_back(points.back());
  return kept;
}

}  // namespace

std::vector<float> smoothed(std::span<const float> y, double weight) {
  std::vector<float> all(y.begin(), y.end());
  double mean = 0, missing = 1;  // the weight of the zero before the first value
  for (float& value : all) {
    if (!std::isfinite(value)) continue;
    mean = weight * mean + (1 - weight) * static_cast<double>(value);
    missing *= weight;
    value = static_cast<float>(mean / (1 - missing));
  }
  return all;
}

Curve draw_curve(std::span<const double> x, std::span<const float> y, const CurveWish& wish) {
  LOCKSTEP_CHECK(x.size() == y.size(), x.size(), " and ", y.size());
  std::vector<float> smooth;
  if (wish.smoothing > 0) {
    smooth = smoothed(y, wish.smoothing);
    y = smooth;
  }
  const std::vector<size_t> points = points_of_stretch(x, y, wish);
  Curve curve;
  curve.of = points.size();
  for (const size_t i : thinned(points, y, std::max(wish.points, kLeastPoints))) {
    curve.x.push_back(x[i]);
    curve.y.push_back(y[i]);
  }
  return curve;
}

double mean_of_stretch(std::span<const double> x, std::span<const float> y, const CurveWish& wish) {
  double sum = 0, count = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(y[i]) || x[i] < wish.from || x[i] > wish.to) continue;
    sum += static_cast<double>(y[i]);
    ++count;
  }
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace lockstep::cli
