#include "core/kernels/matmul.h"

// oneDNN's product, which at::mm uses for bf16 alone; LibTorch exports it and ships no header.
namespace at::native {
void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& out, float beta, float alpha);
}

namespace lockstep::core {
namespace {

// On x86-64 oneDNN's fp32 kernels use AVX-512 where at::mm's BLAS (MKL on AMD) keeps to AVX2.
// mkldnn_matmul refuses a CPU without these three extensions, for every type.
bool onednn_is_faster(const at::Tensor& a) {
#if defined(__x86_64__)
  static const bool has_avx512 = __builtin_cpu_supports("avx512bw") &&
                                 __builtin_cpu_supports("avx512dq") &&
                                 __builtin_cpu_supports("avx512vl");
  return has_avx512 && a.scalar_type() == at::kFloat && a.is_cpu() && a.numel() > 0 &&
         at::hasMKLDNN() && at::globalContext().userEnabledMkldnn();
#else
  return a.numel() < 0;
#endif
}

}  // namespace

void multiply(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  if (onednn_is_faster(a)) {
    at::native::mkldnn_matmul(a, b, out, /*beta=*/0.0f, /*alpha=*/1.0f);
  } else if (a.dim() == 2) {
    at::mm_out(out, a, b);
  } else {
    at::bmm_out(out, a, b);
  }
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  std::vector<int64_t> shape = a.sizes().vec();
  shape.back() = b.size(-1);
  at::Tensor out = at::empty(shape, a.options());
  multiply(a, b, out);
  return out;
}

}  // namespace lockstep::core
