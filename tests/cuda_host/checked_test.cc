// What the program under ASan and UBSan finds, beside the cases that it runs.
#include <gtest/gtest.h>

#include "tests/cuda_host/broken_kernels.h"
#include "tests/cuda_host/device_memory.h"

// A KernelFault drops stacks with what they own.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

namespace lockstep::cuda_host {
namespace {

TEST(CheckedDeathTest, AReadPastTheEndEndsTheProgram) {
  core::Array<core::OnCuda, float> in(std::vector<float>(1000)), out(std::vector<float>(1));
  EXPECT_DEATH(read_past_the_end(in.get(), 1000, out.get()), "heap-buffer-overflow");
  read_past_the_end(in.get(), 999, out.get());
}

}  // namespace
}  // namespace lockstep::cuda_host
