// One kernel of a step, and how long a device takes for it: the longest of its FLOPs, bytes and
// exponentials at the device's rates, as if they overlapped perfectly, and what a kernel costs
// beside them. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "layout/device_rates.h"

namespace lockstep::layout {

enum class Engine {
  kProduct,            // of the matrix library
  kAttention,          // a fused kernel, forward; a block's products on a CPU
  kAttentionBackward,  // … backward
  kKernel,             // one of ours
  kCopy,               // of LibTorch: copies, fills, sums of whole tensors
};

struct Operation {
  const char* what = "";
  Engine engine = Engine::kKernel;
  int64_t width = 4;  // bytes of an element: 2 is bf16
  double flops = 0, bytes = 0, exps = 0;
  double serial_s = 0;  // a chain of loads that no wider device shortens
  int64_t times = 1;    // as many kernels, and what stands above is each one's
};

inline double product_rate(const Operation& op, const DeviceRates& rates) {
  const double tflops = op.width == 2 ? rates.bf16_gemm_tflops : rates.fp32_gemm_tflops;
  const double share = op.engine == Engine::kAttention           ? rates.attention_share
                       : op.engine == Engine::kAttentionBackward ? rates.attention_backward_share
                                                                 : 1.0;
  return tflops * share * 1e12;
}

inline double byte_rate(const Operation& op, const DeviceRates& rates) {
  const double share = op.engine != Engine::kKernel ? 1.0
                       : op.width == 2              ? rates.bf16_kernel_share
                                                    : rates.fp32_kernel_share;
  return rates.memory_gb_per_s * share * 1e9;
}

inline double seconds_of(const Operation& op, const DeviceRates& rates) {
  const double work = std::max({op.flops / product_rate(op, rates), op.bytes / byte_rate(op, rates),
                                op.exps / (rates.exponentials_per_ns * 1e9), op.serial_s});
  return static_cast<double>(op.times) * (work + rates.kernel_us * 1e-6);
}

}  // namespace lockstep::layout
