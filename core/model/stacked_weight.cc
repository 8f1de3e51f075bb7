#include "core/model/stacked_weight.h"

#include <ATen/ops/cat.h>

#include "core/kernels/matmul.h"
#include "layout/stage_sizes.h"

namespace lockstep::core {
namespace {

int64_t stacked_rows(const UnitPart& unit, int first, int count) {
  int64_t rows = 0;
  for (int i = first; i < first + count; ++i)
    rows += unit.spec().params[static_cast<size_t>(i)].shape[0];
  return rows;
}

at::Tensor stacked_view(const at::Tensor& first_matrix, int64_t rows) {
  return first_matrix.as_strided({rows, first_matrix.size(1)}, {first_matrix.size(1), 1});
}

}  // namespace

at::Tensor stacked_weight(const UnitPart& unit, int first, int count) {
  if (layout::back_to_back(unit.spec(), first, count))
    return stacked_view(unit.weight(first), stacked_rows(unit, first, count));
  std::vector<at::Tensor> parts;
  for (int i = first; i < first + count; ++i) parts.push_back(unit.weight(i));
  return at::cat(parts, 0);
}

void stacked_weight_grad(const UnitPart& unit, int first, int count, const at::Tensor& dy,
                         const at::Tensor& x) {
  if (layout::back_to_back(unit.spec(), first, count)) {
    at::Tensor out = stacked_view(unit.grad(first), stacked_rows(unit, first, count));
    multiply(dy.t(), x, out);
    return;
  }
  const at::Tensor stacked = product(dy.t(), x);
  int64_t row = 0;
  for (int i = first; i < first + count; ++i) {
    at::Tensor out = unit.grad(i);
    out.copy_(stacked.narrow(0, row, out.size(0)));
    row += out.size(0);
  }
}

}  // namespace lockstep::core
