// What the kernels are templates of: the kind of device whose memory they work on, and its
// elements. On a device they go to the current stream.
#pragma once

#include "base/float16.h"

namespace lockstep::core {

struct OnCpu;
struct OnCuda;

struct Bf16 {
  uint16_t bits;
};

}  // namespace lockstep::core
