// Loops over this process's intra-op threads (at::set_num_threads). No Torch.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::core {

// Calls body(begin, end) for ranges that cover [0, n), at least `grain` long, on several threads
// at once. What a range computes must not depend on where it begins or ends.
using RangeBody = std::function<void(int64_t begin, int64_t end)>;
void parallel_ranges(int64_t n, int64_t grain, const RangeBody& body);
// For ranges of `rows` rows, each `width` elements wide: as many as are worth a thread's while.
void parallel_rows(int64_t rows, int64_t width, const RangeBody& body);

}  // namespace lockstep::core
