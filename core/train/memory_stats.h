// Memory figures of this rank. On CPU the "cuda_*" fields come from a counting allocator put in
// front of LibTorch's own, and say so ("source": "cpu_allocator"); RSS stands beside them. The
// allocator counts every live byte that a tensor asked for, from the first one on, so its maximum
// is exact; the libraries' own scratch is in RSS alone. Where a CUDA device computes they are its
// caching allocator's ("source": "cuda_allocator").
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::core {

// Puts the counting allocator in place. Call once, before the first tensor.
void install_counting_allocator();

struct MemoryStats {
  int64_t allocated_bytes = 0, max_allocated_bytes = 0;
  int64_t rss_bytes = 0, max_rss_bytes = 0;  // of the process
  int64_t total_bytes = 0;                   // of the device, or of the machine
  int64_t reserved_bytes = 0, max_reserved_bytes = 0;
  const char* source = "cpu_allocator";
};
MemoryStats memory_stats();
// {"stage":…, "rank":…, "cuda_memory_allocated_GB":…, "cuda_max_memory_allocated_GB":…, …,
// "stage_max_memory_allocated_GB":…, "cpu_memory_rss_GB":…, "source":"cpu_allocator"}. The stage's
// maximum is the one since the line before; the next stage begins here (on CUDA it is the one since
// the start).
std::string memory_line(const std::string& stage, int rank);

}  // namespace lockstep::core
