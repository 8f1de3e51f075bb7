// The kernels' element type of bfloat16 memory.
#pragma once

#include "base/float16.h"

namespace lockstep::core {

struct Bf16 {
  uint16_t bits;
};

}  // namespace lockstep::core
