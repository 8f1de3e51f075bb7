#include "core/device/runtime.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace lockstep::core::cuda {

Stream current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

void check_launch() { C10_CUDA_KERNEL_LAUNCH_CHECK(); }

Scratch::Scratch(size_t bytes)
    : memory_(c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, current_stream())) {}

Scratch::~Scratch() { c10::cuda::CUDACachingAllocator::raw_delete(memory_); }

}  // namespace lockstep::core::cuda
