// What of a curve is drawn: a stretch of it, smoothed, and thinned to as many points as a picture
// has room for. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace lockstep::cli {

struct Curve {
  std::vector<double> x;
  std::vector<float> y;
  size_t of = 0;  // points of the stretch before it was thinned
};

struct CurveWish {
  // The stretch, in units of x. One point more on each side is drawn, so that lines reach the edge.
  double from = -std::numeric_limits<double>::infinity();
  double to = std::numeric_limits<double>::infinity();
  size_t points = 1000;  // at most so many, and at least kLeastPoints
  double smoothing = 0;  // in [0, 1): the weight of what came before
};
inline constexpr size_t kLeastPoints = 4;

// Exponential moving average, its beginning corrected for what is missing before it (as Adam's
// moments are, and TensorBoard's curves): m = w m + (1 - w) y, m / (1 - w^n). What is not finite is
// left out, and stays.
std::vector<float> smoothed(std::span<const float> y, double weight);

// The points with a finite y, thinned so that no peak is lost: of each of points / 2 parts of equal
// count the smallest and the largest y, in their order. First and last point stay.
// Requires: x and y are of one size; x does not fall.
Curve draw_curve(std::span<const double> x, std::span<const float> y, const CurveWish& wish);

// The mean of the finite y of [from, to]; NaN: there is none.
double mean_of_stretch(std::span<const double> x, std::span<const float> y, const CurveWish& wish);

}  // namespace lockstep::cli
