// What code that launches CUDA kernels needs of LibTorch's CUDA: its stream, its memory, its error
// check. No Torch and no CUDA header, so that nvcc is fast and every file may include it.
// Thread: the training thread.
#pragma once

#include <cstddef>

struct CUstream_st;

namespace lockstep::core::cuda {

using Stream = CUstream_st*;

// LibTorch's current stream: where kernels are launched.
Stream current_stream();
// After a launch. Throws c10::Error if it was refused.
void check_launch();

// Device memory for what the current stream does next, from LibTorch's caching allocator: once
// freed, later work of that stream alone gets it.
class Scratch {
 public:
  explicit Scratch(size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_;
};

}  // namespace lockstep::core::cuda
