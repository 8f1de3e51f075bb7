// Causal softmax attention of one layer inside documents, with or without a window; each key head
// serves a group of query heads. A run of documents of one length is worked on in blocks
// of queries, each with the keys that it sees:
//
//   scores = q k^T    probabilities = softmax over seen keys (fp32)    out = probabilities v
//
// so the work is that of the sum of the squares of lengths, and what is computed for a document
// depends on its run alone. A key head's queries are stacked, so that keys and values are never
// repeated. The products are LibTorch's batched ones.
#pragma once

#include "core/kernels/kernels.h"

namespace lockstep::core {

// Kernels::attention and its backward, by LibTorch's products and the softmax of `kernels`.
at::Tensor attend(const Kernels& kernels, const AttentionShape& shape, const at::Tensor& qkv,
                  const Documents& documents, AttentionKept& kept);
at::Tensor attend_back(const Kernels& kernels, const AttentionShape& shape, const at::Tensor& d_out,
                       const at::Tensor& qkv, const Documents& documents,
                       const AttentionKept& kept);

}  // namespace lockstep::core
