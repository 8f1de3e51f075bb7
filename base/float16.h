// The 16-bit floating-point formats as they lie in memory, to and from fp32. constexpr, so that
// CUDA kernels compile the same functions.
#pragma once

#include <cstdint>

namespace lockstep {
inline namespace base {

// bfloat16: the upper half of a float.
constexpr float bf16_to_float(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  return __builtin_bit_cast(float, word);
}
// Round to nearest, ties to even; NaN stays NaN.
constexpr uint16_t float_to_bf16(float value) {
  const uint32_t word = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(nan ? (word >> 16) | 0x40u : rounded);
}
// IEEE binary16. Exact: the exponent moves by scaling, which also makes subnormals normal.
inline float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  const bool not_finite = (bits & 0x7c00u) == 0x7c00u;
  const float scaled = __builtin_bit_cast(float, rest) * 0x1p112f;
  const uint32_t word = not_finite ? rest | 0x7f800000u : __builtin_bit_cast(uint32_t, scaled);
  return __builtin_bit_cast(float, sign | word);
}

}  // namespace base
}  // namespace lockstep
