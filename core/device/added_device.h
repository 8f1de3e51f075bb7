// A kind of device beside those of devices.h: how a test brings its own (sim_device.h).
#pragma once

#include "core/device/device.h"

namespace lockstep::core {

// From now on device_of gives `kind` for its tensors, and local_device is it. One a process.
void add_device(const Device& kind);

}  // namespace lockstep::core
