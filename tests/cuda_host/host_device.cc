// What the programs of this folder are given instead of LibTorch's: "device memory", which is the
// host's, and loops that one thread runs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "core/device/runtime.h"
#include "core/kernels/parallel.h"
#include "tests/cuda_host/device_memory.h"
#include "tests/cuda_host/emulator.h"
#include "tests/support/seed.h"

namespace lockstep::core {

void* allocate_on_device(size_t bytes) {
  constexpr int kGarbage = 0xff;  // NaN, in every format
  void* const memory = std::malloc(bytes);
  std::memset(memory, kGarbage, bytes);
  cuda_host::show_memory(memory, bytes);
  return memory;
}
void free_on_device(void* memory) {
  cuda_host::hide_memory(memory);
  std::free(memory);
}
void copy_to_device(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
void copy_from_device(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

void expect_same_each_time(const std::function<uint64_t()>& run) {
  cuda_host::Settings& settings = cuda_host::settings();
  settings.order = cuda_host::Order::kForward;
  const uint64_t forward = run();
  settings.order = cuda_host::Order::kBackward;
  EXPECT_EQ(forward, run()) << "threads in the opposite order";
  settings.order = cuda_host::Order::kShuffled;
  settings.seed = test_support::seed_or(1);
  EXPECT_EQ(forward, run()) << "threads in the order of LOCKSTEP_SEED=" << settings.seed;
}

void parallel_ranges(int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& body) {
  body(0, n);
}

namespace cuda {
Scratch::Scratch(size_t bytes) : memory_(allocate_on_device(bytes)) {}
Scratch::~Scratch() { free_on_device(memory_); }
}  // namespace cuda

}  // namespace lockstep::core
