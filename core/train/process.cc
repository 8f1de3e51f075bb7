#include "core/train/process.h"

#include "core/train/memory_stats.h"

namespace lockstep::core {

void set_up_process(int threads) {
  at::set_num_threads(threads);
  install_counting_allocator();
}

}  // namespace lockstep::core
