// Kernels with one fault each, which the emulator has to find, and their faultless forms.
#pragma once

#include <cstdint>

namespace lockstep::cuda_host {

// out[i] = in[threads - 1 - i], over __shared__ memory, in a block of 64 threads.
enum class Reverse { kRight, kNoBarrier, kOneLeaves, kTwoBarriers, kNothingShared };
void reverse(Reverse how, const float* in, float* out);

// out[0] = the sum of 32 numbers, in one warp.
enum class WarpSum { kRight, kHalfAtTheShuffle, kWrongMask, kLaneOutside, kOneLeaves, kTwoMasks };
void warp_sum(WarpSum how, const float* in, float* out);

// Each of `blocks` blocks writes out[block]; `wrong` ones write out[block / 2].
void write_places(bool wrong, int64_t blocks, float* out);
// Reads in[n], one past the end.
void read_past_the_end(const float* in, int64_t n, float* out);

}  // namespace lockstep::cuda_host
