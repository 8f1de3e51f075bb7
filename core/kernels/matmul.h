// Matrix products in the compute dtype, by the fastest kernels that LibTorch has for it.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::core {

// out [M, N] = a [M, K] b [K, N], or stacks of them [S, M, N] = [S, M, K] [S, K, N]. Factors are
// contiguous or transposed views of what is; out is contiguous.
void multiply(const at::Tensor& a, const at::Tensor& b, at::Tensor& out);
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
// out = beta out + alpha a b, matrices alone, rounded once.
void multiply_add(const at::Tensor& a, const at::Tensor& b, at::Tensor& out, double beta,
                  double alpha);

// While one lives, the above multiply matrices on the CPU row by row
// (core/kernels/row_kernels.h): a row's bits do not depend on the other rows. Of this thread
// alone. Requires: `a` is contiguous.
class RowByRow {
 public:
  RowByRow();
  ~RowByRow();
  RowByRow(const RowByRow&) = delete;
  RowByRow& operator=(const RowByRow&) = delete;

 private:
  bool before_;
};

// How the above multiply bf16 on an x86-64 CPU without AVX-512, where LibTorch's own product
// takes many times as long as one in fp32. Panels of both matrices are
// widened, and each element of `out` is rounded once. Its memory, at most 3 x `panel` floats a
// thread, is not that of tensors. Same shapes and panels, same bits.
inline constexpr int64_t kWidenedPanel = int64_t{1} << 21;  // 8 MiB
void multiply_widened(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, double beta,
                      double alpha, int64_t panel = kWidenedPanel);

}  // namespace lockstep::core
