// A run of elements of a row-major tensor, cut into boxes: what a virtual dataset can map.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::checkpoint {

struct Box {  // start and count for each dimension
  std::vector<int64_t> start, count;
  int64_t flat_start = 0;  // of its first element in the tensor
  int64_t elements = 0;
};

// [flat_start, flat_start + length) as boxes in row-major order, each contiguous in the flat order;
// at most 2 * dims - 1. A scalar counts as shape [1]. Requires: the run lies in the tensor.
std::vector<Box> flat_boxes(const std::vector<int64_t>& shape, int64_t flat_start, int64_t length);

}  // namespace lockstep::checkpoint
