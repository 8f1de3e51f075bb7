#include "core/kernels/add_kernels.h"

#include "core/kernels/vector_clones.h"

namespace lockstep::core {

LOCKSTEP_VECTOR_CLONES
void add_to(float* __restrict sum, const float* __restrict part, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += part[i];
}

LOCKSTEP_VECTOR_CLONES
void add_to(float* __restrict sum, const Bf16* __restrict part, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += bf16_to_float(part[i].bits);
}

LOCKSTEP_VECTOR_CLONES
void widen(float* __restrict out, const Bf16* __restrict in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_float(in[i].bits);
}

LOCKSTEP_VECTOR_CLONES
void narrow(Bf16* __restrict out, const float* __restrict in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i].bits = float_to_bf16(in[i]);
}

}  // namespace lockstep::core
