// Elementwise sums with one rounding each: the same bits on every instruction set and device. T is
// float or Bf16. No Torch.
#pragma once

#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace lockstep::core {

// sum += part.
template <typename Place, typename T>
void add_to(float* sum, const T* part, int64_t n);
// out = in, rounded once.
template <typename Place>
void narrow(Bf16* out, const float* in, int64_t n);
// out = in.
template <typename Place>
void widen(float* out, const Bf16* in, int64_t n);
// sum[c] += column c of dy [rows, row_stride], for c in [0, columns): on the CPU row after row, on
// a device runs of rows in row order, then the runs in order.
template <typename Place, typename T>
void add_columns(float* sum, const T* dy, int64_t rows, int64_t columns, int64_t row_stride);

// On CUDA: sum[token, dim] += the rows of dy [rows, dim] of that token, in row order. `sorted`: the
// rows' tokens in ascending order and order[i] the row that sorted[i] is of; equal ones in row
// order.
template <typename T>
void add_rows_by_token(float* sum, const T* dy, const int64_t* sorted, const int64_t* order,
                       int64_t rows, int64_t dim);

}  // namespace lockstep::core
