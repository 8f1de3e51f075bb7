#include "tests/cuda_host/broken_kernels.h"

#include "core/device/launch.cuh"

namespace lockstep::cuda_host {
namespace {

using core::cuda::kAllLanes;
using core::cuda::kWarp;

constexpr int kThreads = 64;

__global__ void reverse_kernel(Reverse how, const float* in, float* out) {
  __shared__ float all[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  if (how == Reverse::kOneLeaves && thread == 5) return;
  if (how != Reverse::kNothingShared) all[thread] = in[thread];
  if (how == Reverse::kTwoBarriers && thread % 2 == 0) {
    __syncthreads();
  } else if (how != Reverse::kNoBarrier) {
    __syncthreads();
  }
  out[thread] = all[kThreads - 1 - thread];
}

__global__ void warp_sum_kernel(WarpSum how, const float* in, float* out) {
  const int lane = static_cast<int>(threadIdx.x);
  float sum = in[lane];
  unsigned lanes = kAllLanes;
  if (how == WarpSum::kOneLeaves && lane == 5) return;
  if (how == WarpSum::kHalfAtTheShuffle && lane >= kWarp / 2) {
    __syncthreads();
    return;
  }
  if (how == WarpSum::kWrongMask) lanes = 0xffff0000u;
  if (how == WarpSum::kLaneOutside) lanes = 1u << lane;
  if (how == WarpSum::kTwoMasks && lane == 5) lanes = 0x7fffffffu;
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(lanes, sum, distance);
  if (lane == 0) out[0] = sum;
}

__global__ void write_places_kernel(bool wrong, float* out) {
  out[wrong ? blockIdx.x / 2 : blockIdx.x] = 1.0f;
}

__global__ void copy_one_kernel(const float* in, int64_t at, float* out) { out[0] = in[at]; }

}  // namespace

void reverse(Reverse how, const float* in, float* out) {
  core::cuda::launch<reverse_kernel>(1, kThreads, how, in, out);
}
void warp_sum(WarpSum how, const float* in, float* out) {
  core::cuda::launch<warp_sum_kernel>(1, kWarp, how, in, out);
}
void write_places(bool wrong, int64_t blocks, float* out) {
  core::cuda::launch<write_places_kernel>(static_cast<unsigned>(blocks), 1, wrong, out);
}
void read_past_the_end(const float* in, int64_t n, float* out) {
  core::cuda::launch<copy_one_kernel>(1, 1, in, n, out);
}

}  // namespace lockstep::cuda_host
