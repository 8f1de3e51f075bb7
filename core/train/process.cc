#include "core/train/process.h"

#include <malloc.h>

#include "core/cuda/device.h"
#include "core/train/memory_stats.h"

namespace lockstep::core {

void set_up_process(int threads) {
  at::set_num_threads(threads);
  // Activations come and go every slot: memory given back to the kernel is faulted in again,
  // zeroed.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  install_counting_allocator();
}

Result<Membership> join_alone() {
  RendezvousOptions options;
  options.device = compute_device(0);
  set_up_device(options.device);
  return join(options);
}

}  // namespace lockstep::core
