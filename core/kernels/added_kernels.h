// A column of the table beside those of kernel_table.h, for a kind that core/device/added_device.h
// brings.
#pragma once

#include "core/kernels/kernels.h"

namespace lockstep::core {

// From now on kernels_on gives `kernels` for tensors of `type`. One a process.
void add_kernels(at::DeviceType type, const Kernels& kernels);

}  // namespace lockstep::core
