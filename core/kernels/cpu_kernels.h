// The CPU column of the table.
#pragma once

#include "core/kernels/kernels.h"

namespace lockstep::core {

const Kernels& cpu_kernels();

}  // namespace lockstep::core
