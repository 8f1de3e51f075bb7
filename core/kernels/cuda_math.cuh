// Elements as the model's CUDA kernels read and write them.
#pragma once

#include "core/device/launch.cuh"
#include "core/kernels/kernel_types.h"

namespace lockstep::core::cuda {

__device__ inline float load(float value) { return value; }
__device__ inline float load(Bf16 value) { return bf16_to_float(value.bits); }
__device__ inline void store(float& to, float value) { to = value; }
__device__ inline void store(Bf16& to, float value) { to.bits = float_to_bf16(value); }

}  // namespace lockstep::core::cuda
