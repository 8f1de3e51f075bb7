// CUDA's C++ as another compiler reads it, which is what makes host code of the .cu files: the
// words that they use, on tests/cuda_host/emulator.h. It holds what our kernels use and no more; a
// kernel that uses another word does not compile here until the word is added.
//
// A `__shared__` variable is a static one, for blocks run one after another.
#pragma once

#include <math.h>  // expf and its like stand in the global namespace

#include <cstdint>
#include <cstring>
#include <source_location>
#include <tuple>
#include <typeinfo>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)  // the tests have them from tests/gpu/ptxas.txt

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
};
// Of the thread that runs.
extern dim3 threadIdx, blockIdx, blockDim;

// All threads of the block meet at one call, and none has left the kernel; else a KernelFault.
void __syncthreads(std::source_location at = std::source_location::current());

namespace lockstep::cuda_host {

// The value that lane `own lane ^ lane_mask` gave. All lanes of `lanes` meet at one call with the
// same `lanes`, and the lane that is asked is one of them; else a KernelFault.
uint64_t shuffle_xor(unsigned lanes, uint64_t bits, int lane_mask, const std::source_location& at);

// Runs body(arguments) for every thread of every block. `kernel` is typeid's name of a
// KernelName. Errors: throws KernelFault.
void run_launch(const char* kernel, dim3 grid, int threads, const void* arguments,
                size_t arguments_bytes, void (*body)(const void*));
template <auto Kernel>
struct KernelName {};

// kernel<<<grid, threads>>>(arguments…): each thread has copies of its own.
template <auto Kernel, typename... Arguments>
void launch(dim3 grid, int threads, const Arguments&... arguments) {
  using All = std::tuple<Arguments...>;
  const All all(arguments...);
  run_launch(
      typeid(KernelName<Kernel>).name(), grid, threads, &all, sizeof(all), [](const void* of_all) {
        std::apply([](const auto&... each) { Kernel(each...); }, *static_cast<const All*>(of_all));
      });
}

}  // namespace lockstep::cuda_host

template <typename T>
T __shfl_xor_sync(unsigned lanes, T value, int lane_mask,
                  std::source_location at = std::source_location::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = lockstep::cuda_host::shuffle_xor(lanes, bits, lane_mask, at);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
