// Products row by row: each element of the result is a sum over one row of x and one column of w,
// added in an order that depends on the row's length alone. What a row gives therefore has the same
// bits whatever rows stand next to it, on every instruction set and number of threads; a library's
// product picks its order by the number of rows. Generation computes with them: a token alone and
// inside of a prompt, or of a batch, gives the same logits. No Torch. T is float or Bf16;
// arithmetic is fp32 without fused operations, rounded once on store.
#pragma once

#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace lockstep::core {

// x [rows, inner], fp32.
struct RowFactor {
  const float* x;
  int64_t rows, inner;
};
// Of the result [rows, width]: the columns [begin, end), which are computed.
struct ColumnRange {
  int64_t begin, end, width;
};

// out = x w^T with w [width, inner]. The terms of a sum go to 16 lanes in turn, which are added as
// fold_lanes does (kernel_math.h).
void rows_by_rows(const RowFactor& x, const float* w, const ColumnRange& columns, float* out);
void rows_by_rows(const RowFactor& x, const Bf16* w, const ColumnRange& columns, float* out);
void rows_by_rows(const RowFactor& x, const Bf16* w, const ColumnRange& columns, Bf16* out);
// out = x w with w [inner, width]. The terms of a sum are added in their order.
void rows_by_columns(const RowFactor& x, const float* w, const ColumnRange& columns, float* out);
void rows_by_columns(const RowFactor& x, const Bf16* w, const ColumnRange& columns, Bf16* out);

}  // namespace lockstep::core
