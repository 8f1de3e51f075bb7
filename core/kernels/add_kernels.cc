#include "core/kernels/add_kernels.h"

#include "core/kernels/kernel_math.h"

namespace lockstep::core {

LOCKSTEP_CLONED add_to<OnCpu>(float* __restrict sum, const float* __restrict part, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += part[i];
}

LOCKSTEP_CLONED add_to<OnCpu>(float* __restrict sum, const Bf16* __restrict part, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += bf16_to_float(part[i].bits);
}

LOCKSTEP_CLONED narrow<OnCpu>(Bf16* __restrict out, const float* __restrict in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i].bits = float_to_bf16(in[i]);
}

LOCKSTEP_CLONED widen<OnCpu>(float* __restrict out, const Bf16* __restrict in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_float(in[i].bits);
}

#define LOCKSTEP_INSTANTIATE(T)                                                          \
  template <>                                                                            \
  void add_columns<OnCpu>(float* sum, const T* dy, int64_t rows, int64_t columns,        \
                          int64_t row_stride) {                                          \
    for (int64_t r = 0; r < rows; ++r) add_to<OnCpu>(sum, dy + r * row_stride, columns); \
  }
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core
