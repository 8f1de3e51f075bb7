// The kinds of device that this build knows. The same interface in every build.
#pragma once

#include "core/device/device.h"

namespace lockstep::core {

#ifdef LOCKSTEP_CUDA
inline constexpr bool kCpuOnly = false;
#else
inline constexpr bool kCpuOnly = true;
#endif

// The kind that this build is for, seen or not: the CPU in a build without CUDA.
const Device& built_device();
// The kind of `device`.
const Device& device_of(at::Device device);
// The kind that this process computes on: the CPU where it sees no other.
const Device& local_device();

// Name and value of the environment variable that gives cuBLAS the same workspace every time: its
// choice of algorithm depends on it.
inline constexpr const char* kCublasWorkspace[] = {"CUBLAS_WORKSPACE_CONFIG", ":4096:8"};

}  // namespace lockstep::core
