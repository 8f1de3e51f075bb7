// The CUDA column of the table.
#pragma once

#include "core/kernels/kernels.h"

namespace lockstep::core {

const Kernels& cuda_kernels();

}  // namespace lockstep::core
