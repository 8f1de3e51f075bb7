#include "core/kernels/parallel.h"

#include <ATen/Parallel.h>

namespace lockstep::core {

void parallel_ranges(int64_t n, int64_t grain,
                     const std::function<void(int64_t begin, int64_t end)>& body) {
  at::parallel_for(0, n, grain, body);
}

}  // namespace lockstep::core
