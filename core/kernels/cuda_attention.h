// Attention on a CUDA device.
#pragma once

#include "core/kernels/attention.h"

namespace lockstep::core::cuda {

// Kernels::attention. Fused and in bf16 by LibTorch's flash kernel (E a multiple of 8, at most
// 256), whose backward is the deterministic one (Device::set_up), in its form for sequences of
// several lengths where documents have some; else, and in fp32, for which there is no flash kernel,
// with whole score matrices [count*K, G*L, L], one run of documents after the other.
at::Tensor attention(const AttentionShape& shape, const at::Tensor& qkv, const Documents& documents,
                     AttentionKept& kept);
at::Tensor attention_back(const AttentionShape& shape, const at::Tensor& d_out,
                          const at::Tensor& qkv, const Documents& documents,
                          const AttentionKept& kept);

}  // namespace lockstep::core::cuda
