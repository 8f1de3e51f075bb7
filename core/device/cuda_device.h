// NVIDIA GPUs, through LibTorch.
#pragma once

#include "core/device/device.h"

namespace lockstep::core {

const Device& cuda_device();

}  // namespace lockstep::core
