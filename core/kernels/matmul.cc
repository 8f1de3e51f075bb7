#include "core/kernels/matmul.h"

#if defined(LOCKSTEP_ONEDNN_MATMUL)  // cmake/Torch.cmake looks for it
// oneDNN's product, which at::mm uses for bf16 alone; LibTorch exports it and ships no header.
namespace at::native {
void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& out, float beta, float alpha);
}
#endif

namespace lockstep::core {
namespace {

// On x86-64 oneDNN's fp32 kernels use AVX-512 where at::mm's BLAS (MKL on AMD) keeps to AVX2.
// mkldnn_matmul refuses a CPU without these three extensions, for every type.
#if defined(LOCKSTEP_ONEDNN_MATMUL) && defined(__x86_64__)
bool multiplied_by_onednn(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  static const bool has_avx512 = __builtin_cpu_supports("avx512bw") &&
                                 __builtin_cpu_supports("avx512dq") &&
                                 __builtin_cpu_supports("avx512vl");
  const bool faster = has_avx512 && a.scalar_type() == at::kFloat && a.is_cpu() && a.numel() > 0 &&
                      at::hasMKLDNN() && at::globalContext().userEnabledMkldnn();
  if (faster) at::native::mkldnn_matmul(a, b, out, /*beta=*/0.0f, /*alpha=*/1.0f);
  return faster;
}
#else
bool multiplied_by_onednn(const at::Tensor&, const at::Tensor&, const at::Tensor&) { return false; }
#endif

}  // namespace

void multiply(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  if (multiplied_by_onednn(a, b, out)) return;
  if (a.dim() == 2) {
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
