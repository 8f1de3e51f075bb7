#include <cmath>
#include <numbers>

#include "base/elementary.h"
#include "base/hash.h"
#include "core/model/decoder.h"

namespace lockstep::core {
namespace {

// (0, 1]: a logarithm of it is finite.
double unit_interval(uint32_t word) { return (static_cast<double>(word) + 1.0) / 4294967296.0; }

// Four normal numbers for elements 4*quad … 4*quad+3.
void normal_quad(uint64_t key, uint64_t quad, double* out) {
  const Philox4 random = philox(key, 0, quad);
  for (int pair = 0; pair < 2; ++pair) {
    const double radius = std::sqrt(-2.0 * elementary::log(unit_interval(random.word[2 * pair])));
    const auto [sin, cos] =
        elementary::sin_cos(2.0 * std::numbers::pi * unit_interval(random.word[2 * pair + 1]));
    out[2 * pair] = radius * cos;
    out[2 * pair + 1] = radius * sin;
  }
}

// Four numbers from [-1, 1).
void uniform_quad(uint64_t key, uint64_t quad, double* out) {
  const Philox4 random = philox(key, 0, quad);
  for (int i = 0; i < 4; ++i) out[i] = static_cast<double>(random.word[i]) / 2147483648.0 - 1.0;
}

}  // namespace

void initialize_parameter(const layout::ParamSpec& param, uint64_t seed, int64_t flat_start,
                          int64_t length, int64_t counter_offset, float* out) {
  const bool uniform = param.init_bound > 0;
  if (param.init_std == 0 && !uniform) {
    std::fill_n(out, length, static_cast<float>(param.init_value));
    return;
  }
  const uint64_t key = purpose_key(seed, "init/" + param.name);
  double quad[4];
  int64_t have = -1;
  for (int64_t i = 0; i < length; ++i) {
    const int64_t element = flat_start + i + counter_offset;
    if (element / 4 != have) {
      have = element / 4;
      (uniform ? uniform_quad : normal_quad)(key, static_cast<uint64_t>(have), quad);
    }
    out[i] = static_cast<float>((uniform ? param.init_bound : param.init_std) * quad[element % 4]);
  }
}

}  // namespace lockstep::core
