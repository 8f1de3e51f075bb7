// Matrix products in the compute dtype, by the fastest kernels that LibTorch has for it.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::core {

// out [M, N] = a [M, K] b [K, N], or stacks of them [S, M, N] = [S, M, K] [S, K, N]. Factors are
// contiguous or transposed views of what is; out is contiguous.
void multiply(const at::Tensor& a, const at::Tensor& b, at::Tensor& out);
at::Tensor product(const at::Tensor& a, const at::Tensor& b);

}  // namespace lockstep::core
