#include "core/kernels/rotary_table.h"

#include <ATen/ops/empty.h>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/elementary.h"

namespace lockstep::core {
namespace {

// Llama 3: wavelengths beyond what was trained are stretched by `factor`, those well inside stay,
// and those between are blended.
double stretched(double frequency, const layout::RopeScaling& s) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < s.original_positions / s.high_freq_factor) return frequency;
  if (wavelength > s.original_positions / s.low_freq_factor) return frequency / s.factor;
  const double smooth = (s.original_positions / wavelength - s.low_freq_factor) /
                        (s.high_freq_factor - s.low_freq_factor);
  return (1.0 - smooth) * frequency / s.factor + smooth * frequency;
}

// NTK-aware: a base that grows with the length, so that the lowest frequency is divided by how far
// it goes beyond what was trained, and the highest stays.
double grown_theta(double theta, int64_t seq_len, int64_t head_dim, const layout::RopeScaling& s) {
  const double length = std::max(static_cast<double>(seq_len), s.original_positions);
  const double growth = s.factor * length / s.original_positions - (s.factor - 1.0);
  const double dim = static_cast<double>(head_dim);
  return theta * elementary::pow(growth, dim / (dim - 2.0));
}

// YaRN (arXiv 2309.00071): pairs that turn more than beta_fast times within what was trained stay,
// those that turn less than beta_slow times are stretched, and those between are blended.
class YarnRamp {
 public:
  YarnRamp(int64_t head_dim, double theta, const layout::RopeScaling& s) : factor_(s.factor) {
    const double dim = static_cast<double>(head_dim);
    const auto pair_of = [&](double turns) {
      return dim * elementary::log(s.original_positions / (turns * 2.0 * std::numbers::pi)) /
             (2.0 * elementary::log(theta));
    };
    const double low = pair_of(s.beta_fast), high = pair_of(s.beta_slow);
    first_ = std::max(s.truncate ? std::floor(low) : low, 0.0);
    last_ = std::min(s.truncate ? std::ceil(high) : high, dim - 1.0);
    if (first_ == last_) last_ += 0.001;
  }
  double operator()(int64_t pair, double frequency) const {
    const double share =
        std::clamp((static_cast<double>(pair) - first_) / (last_ - first_), 0.0, 1.0);
    return frequency / factor_ * share + frequency * (1.0 - share);
  }

 private:
  double factor_, first_, last_;
};

std::vector<double> frequencies(int64_t seq_len, int64_t head_dim, double theta,
                                const layout::RopeScaling& s) {
  if (s.type == layout::RopeType::kDynamic) theta = grown_theta(theta, seq_len, head_dim, s);
  const YarnRamp yarn(head_dim, theta, s);
  std::vector<double> all;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const double frequency =
        elementary::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    switch (s.type) {
      case layout::RopeType::kDefault:
      case layout::RopeType::kDynamic: all.push_back(frequency); break;
      case layout::RopeType::kLinear: all.push_back(frequency / s.factor); break;
      case layout::RopeType::kYarn: all.push_back(yarn(i, frequency)); break;
      case layout::RopeType::kLlama3: all.push_back(stretched(frequency, s)); break;
    }
  }
  return all;
}

}  // namespace

RotaryTable RotaryTable::create(int64_t seq_len, int64_t head_dim, double theta,
                                const layout::RopeScaling& scaling) {
  const int64_t half = head_dim / 2;
  const std::vector<double> frequency = frequencies(seq_len, head_dim, theta, scaling);
  const float size = static_cast<float>(scaling.attention_factor);
  RotaryTable table{at::empty({seq_len, half}, at::kFloat), at::empty({seq_len, half}, at::kFloat)};
  for (int64_t t = 0; t < seq_len; ++t)
    for (int64_t i = 0; i < half; ++i) {
      // fp32 angles, as the models' reference implementations form them.
      const float angle =
          static_cast<float>(t) * static_cast<float>(frequency[static_cast<size_t>(i)]);
      const auto [sin, cos] = elementary::sin_cos(static_cast<double>(angle));
      table.cos_TH.data_ptr<float>()[t * half + i] = static_cast<float>(cos) * size;
      table.sin_TH.data_ptr<float>()[t * half + i] = static_cast<float>(sin) * size;
    }
  return table;
}

}  // namespace lockstep::core
