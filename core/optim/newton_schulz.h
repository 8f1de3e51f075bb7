// The nearest matrix whose rows, or columns, are orthonormal, about: what Muon moves a weight by.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/sharding/buffer_pool.h"

namespace lockstep::core {

// x [rows, cols], bf16 and contiguous, becomes it in place, by five steps of a quintic
// Newton-Schulz iteration in bf16, as torch.optim.Muon has them: the same operations of LibTorch in
// the same order, so that a device gives the same bits. They depend on x alone. Working memory, of
// the size of x and of two squares of its short side, is of the pool.
void orthogonalize(const at::Tensor& x, BufferPool& pool);

}  // namespace lockstep::core
