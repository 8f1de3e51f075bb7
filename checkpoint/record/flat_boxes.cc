#include "checkpoint/record/flat_boxes.h"

#include <algorithm>

#include "base/check.h"
#include "checkpoint/record/state.h"

namespace lockstep::checkpoint {

// From where it stands the loop takes the largest whole box: rows of the outermost dimension at
// whose boundary it is and of which at least one fits.
std::vector<Box> flat_boxes(const std::vector<int64_t>& shape, int64_t flat_start, int64_t length) {
  const std::vector<int64_t> dims = shape.empty() ? std::vector<int64_t>{1} : shape;
  const int64_t end = flat_start + length;
  LOCKSTEP_CHECK(flat_start >= 0 && length >= 0 && end <= element_count(dims), flat_start, " ",
                 length, " of ", shape_text(dims));
  std::vector<int64_t> stride(dims.size(), 1);
  for (size_t d = dims.size() - 1; d-- > 0;) stride[d] = stride[d + 1] * dims[d + 1];
  std::vector<Box> boxes;
  for (int64_t at = flat_start; at < end;) {
    size_t dim = 0;
    while (at % stride[dim] != 0 || end - at < stride[dim]) ++dim;
    Box box{{}, std::vector<int64_t>(dims.size(), 1), at, 0};
    for (size_t d = 0; d < dims.size(); ++d) box.start.push_back(at / stride[d] % dims[d]);
    for (size_t d = dim + 1; d < dims.size(); ++d) box.count[d] = dims[d];
    box.count[dim] = std::min((end - at) / stride[dim], dims[dim] - box.start[dim]);
    box.elements = box.count[dim] * stride[dim];
    at += box.elements;
    boxes.push_back(std::move(box));
  }
  return boxes;
}

}  // namespace lockstep::checkpoint
