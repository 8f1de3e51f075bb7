// The CPU: its memory is the host's.
#pragma once

#include "core/device/device.h"

namespace lockstep::core {

const Device& cpu_device();

}  // namespace lockstep::core
