#include "core/device/launch.cuh"
#include "core/kernels/add_kernels.h"

namespace lockstep::core::cuda {

void add_floats(float* sum, const float* part, int64_t n) {
  for_each(n, [=] __device__(int64_t i) { sum[i] += part[i]; });
}

void add_bf16(float* sum, const uint16_t* part, int64_t n) {
  for_each(n, [=] __device__(int64_t i) { sum[i] += bf16_to_float(part[i]); });
}

void widen_bf16(float* out, const uint16_t* in, int64_t n) {
  for_each(n, [=] __device__(int64_t i) { out[i] = bf16_to_float(in[i]); });
}

void narrow_to_bf16(uint16_t* out, const float* in, int64_t n) {
  for_each(n, [=] __device__(int64_t i) { out[i] = float_to_bf16(in[i]); });
}

}  // namespace lockstep::core::cuda
