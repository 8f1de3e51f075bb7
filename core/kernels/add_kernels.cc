#include "core/kernels/add_kernels.h"

#include "core/kernels/vector_clones.h"

namespace lockstep::core {

LOCKSTEP_VECTOR_CLONES
void add_floats(float* __restrict sum, const float* __restrict part, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += part[i];
}

LOCKSTEP_VECTOR_CLONES
void add_bf16(float* __restrict sum, const uint16_t* __restrict part, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += bf16_to_float(part[i]);
}

LOCKSTEP_VECTOR_CLONES
void widen_bf16(float* __restrict out, const uint16_t* __restrict in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_float(in[i]);
}

LOCKSTEP_VECTOR_CLONES
void narrow_to_bf16(uint16_t* __restrict out, const float* __restrict in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = float_to_bf16(in[i]);
}

}  // namespace lockstep::core
