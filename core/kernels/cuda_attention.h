// LibTorch's flash kernel on a CUDA device: Kernels::attention fused and in bf16 (E a multiple of
// 8, at most 256), with its deterministic backward (Device::set_up), and in its form for sequences
// of several lengths where documents have some. There is none for fp32, nor for
// scores with a cap.
#pragma once

#include "core/kernels/kernels.h"

namespace lockstep::core {

bool flash_applies(const AttentionShape& shape, const at::Tensor& qkv);
at::Tensor flash_attention(const AttentionShape& shape, const at::Tensor& qkv,
                           const Documents& documents, AttentionKept& kept);
at::Tensor flash_attention_back(const AttentionShape& shape, const at::Tensor& d_out,
                                const at::Tensor& qkv, const Documents& documents,
                                const AttentionKept& kept);

}  // namespace lockstep::core
