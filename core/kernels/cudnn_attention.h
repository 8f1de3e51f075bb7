// cuDNN's attention on a device of compute capability 9 (Hopper): faster there than LibTorch's
// flash kernel, both ways. Backward is deterministic: it keeps the products of scores whole, in
// bf16, and multiplies them with the keys in an order of its own, instead of adding up dq from
// several blocks; so a call takes as many heads as fit into a bounded memory. Reads q, k and v
// where the projections wrote them, and writes their gradients into one tensor.
// Requires: bf16. Thread: the training thread.
#pragma once

#include "core/kernels/kernels.h"

namespace lockstep::core {

// Only documents of one length, without a window or a cap, with heads of 64 to 128; on a device
// and by a cuDNN that can. The same answer wherever those are the same.
bool cudnn_applies(const AttentionShape& shape, const at::Tensor& qkv, const Documents& documents);
at::Tensor cudnn_attention(const AttentionShape& shape, const at::Tensor& qkv,
                           const Documents& documents, AttentionKept& kept);
at::Tensor cudnn_attention_back(const AttentionShape& shape, const at::Tensor& d_out,
                                const at::Tensor& qkv, const Documents& documents,
                                const AttentionKept& kept);

}  // namespace lockstep::core
