#include "core/kernels/rotary_table.h"

#include <numbers>

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

}  // namespace

RotaryTable RotaryTable::create(int64_t seq_len, int64_t head_dim, double theta,
                                const layout::RopeScaling& scaling) {
  const int64_t half = head_dim / 2;
  RotaryTable table{at::empty({seq_len, half}, at::kFloat), at::empty({seq_len, half}, at::kFloat)};
  for (int64_t t = 0; t < seq_len; ++t)
    for (int64_t i = 0; i < half; ++i) {
      double frequency =
          elementary::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      if (scaling.factor > 0) frequency = stretched(frequency, scaling);
      // fp32 angles, as the models' reference implementations form them.
      const float angle = static_cast<float>(t) * static_cast<float>(frequency);
      const auto [sin, cos] = elementary::sin_cos(static_cast<double>(angle));
      table.cos_TH.data_ptr<float>()[t * half + i] = static_cast<float>(cos);
      table.sin_TH.data_ptr<float>()[t * half + i] = static_cast<float>(sin);
    }
  return table;
}

}  // namespace lockstep::core
