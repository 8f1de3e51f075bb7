// Elementwise sums with one rounding each: the same bits on every instruction set. No Torch.
#pragma once

#include <cstdint>

#include "core/kernels/bf16.h"

namespace lockstep::core {

void add_to(float* sum, const float* part, int64_t n);  // sum += part
void add_to(float* sum, const Bf16* part, int64_t n);   // sum += part
void widen(float* out, const Bf16* in, int64_t n);      // out = in
void narrow(Bf16* out, const float* in, int64_t n);     // out = in, rounded once

// On device memory and the current stream. T is float or Bf16.
namespace cuda {
// The same bits.
void add_to(float* sum, const float* part, int64_t n);
void add_to(float* sum, const Bf16* part, int64_t n);
void narrow(Bf16* out, const float* in, int64_t n);
// sum[token, dim] += the rows of dy [rows, dim] of that token, in row order. `sorted`: the rows'
// tokens in ascending order and order[i] the row that sorted[i] is of; equal ones in row order.
template <typename T>
void add_rows_by_token(float* sum, const T* dy, const int64_t* sorted, const int64_t* order,
                       int64_t rows, int64_t dim);
// sum[c] += column c of dy [rows, row_stride], for c in [0, columns): runs of rows in row order,
// then the runs in order.
template <typename T>
void add_columns(float* sum, const T* dy, int64_t rows, int64_t columns, int64_t row_stride);
}  // namespace cuda

}  // namespace lockstep::core
