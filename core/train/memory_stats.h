// Memory figures of this rank. On CPU the "cuda_*" fields come from a counting allocator put in
// front of LibTorch's own, and say so ("source": "cpu_allocator"); RSS stands beside them.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::core {

// Puts the counting allocator in place. Call once, before the first tensor.
void install_counting_allocator();

struct MemoryStats {
  int64_t allocated_bytes = 0, max_allocated_bytes = 0, rss_bytes = 0, total_bytes = 0;
};
MemoryStats memory_stats();
// {"stage":…, "rank":…, "cuda_memory_allocated_GB":…, …, "cpu_memory_rss_GB":…,
// "source":"cpu_allocator"}
std::string memory_line(const std::string& stage, int rank);

}  // namespace lockstep::core
