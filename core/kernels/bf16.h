// The kernels' element type of bfloat16 memory.
#pragma once

#include <cstdint>

namespace lockstep::core {

struct Bf16 {
  uint16_t bits;
};

}  // namespace lockstep::core
