// Elementwise sums with one rounding each: the same bits on every instruction set and device. T is
// float or Bf16. No Torch.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "core/kernels/kernel_types.h"
#include "layout/fold_order.h"

namespace lockstep::core {

// What one kernel of the fold adds (layout/fold_order.h): 1, 2, 4 or 8 parts, and open sums.
template <typename T>
struct FoldTerms {
  const T* part[layout::kMostFoldParts] = {};
  const float* sum[layout::kMostFoldSums] = {};
  int parts = 0, sums = 0;

  void add_part(const T* one) {
    LOCKSTEP_CHECK(parts < layout::kMostFoldParts, parts);
    part[parts++] = one;
  }
  void add_sum(const float* one) {
    LOCKSTEP_CHECK(sums < layout::kMostFoldSums, sums);
    sum[sums++] = one;
  }
};

// out = sum[0] + (… + (the last sum + the parts)), the parts as a balanced tree: as if each were
// added to the next. `out` is sum[0] where there is one.
template <typename Place, typename T>
void fold(float* out, const FoldTerms<T>& terms, int64_t n);
// On the CPU: sum += part.
template <typename Place, typename T>
void add_to(float* sum, const T* part, int64_t n);
// out = in, rounded once.
template <typename Place>
void narrow(Bf16* out, const float* in, int64_t n);
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
