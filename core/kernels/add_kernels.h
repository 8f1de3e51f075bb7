// Elementwise sums with one rounding each: the same bits on every instruction set. No Torch.
#pragma once

#include <cstdint>

#include "base/float16.h"

namespace lockstep::core {

void add_floats(float* sum, const float* part, int64_t n);       // sum += part
void add_bf16(float* sum, const uint16_t* part, int64_t n);      // sum += part
void widen_bf16(float* out, const uint16_t* in, int64_t n);      // out = in
void narrow_to_bf16(uint16_t* out, const float* in, int64_t n);  // out = in, rounded once

// The same, on device memory and the current stream: the same bits.
namespace cuda {
void add_floats(float* sum, const float* part, int64_t n);
void add_bf16(float* sum, const uint16_t* part, int64_t n);
void widen_bf16(float* out, const uint16_t* in, int64_t n);
void narrow_to_bf16(uint16_t* out, const float* in, int64_t n);
}  // namespace cuda

}  // namespace lockstep::core
