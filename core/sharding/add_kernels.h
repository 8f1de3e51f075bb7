// Elementwise sums with one rounding each: the same bits on every instruction set. No Torch.
#pragma once

#include <cstdint>

namespace lockstep::core {

// The upper half of a float: bfloat16 as it lies in memory.
inline float bf16_to_float(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  return __builtin_bit_cast(float, word);
}
// Round to nearest, ties to even; NaN stays NaN.
inline uint16_t float_to_bf16(float value) {
  const uint32_t word = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(nan ? (word >> 16) | 0x40u : rounded);
}

void add_floats(float* sum, const float* part, int64_t n);       // sum += part
void add_bf16(float* sum, const uint16_t* part, int64_t n);      // sum += part
void widen_bf16(float* out, const uint16_t* in, int64_t n);      // out = in
void narrow_to_bf16(uint16_t* out, const float* in, int64_t n);  // out = in, rounded once

}  // namespace lockstep::core
