#include "core/kernels/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace lockstep::core {
namespace {

constexpr int64_t kGrain = 16384;  // elements worth a thread's while

}  // namespace

void parallel_ranges(int64_t n, int64_t grain, const RangeBody& body) {
  at::parallel_for(0, n, grain, body);
}

void parallel_rows(int64_t rows, int64_t width, const RangeBody& body) {
  parallel_ranges(rows, std::max<int64_t>(1, kGrain / width), body);
}

}  // namespace lockstep::core
