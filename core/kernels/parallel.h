// Loops over this process's intra-op threads (at::set_num_threads). No Torch.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::core {

// Calls body(begin, end) for ranges that cover [0, n), at least `grain` long, on several threads
// at once. What a range computes must not depend on where it begins or ends.
void parallel_ranges(int64_t n, int64_t grain,
                     const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace lockstep::core
