// The counters that Linux keeps of a machine's hardware, in files below /sys:
//
//   devices/system/edac/mc/mc*/ue_count, ce_count    memory errors, by memory controller
//   devices/system/cpu/cpu*/thermal_throttle/*_throttle_count   a processor slowed down for heat
//   class/net/*/carrier_changes, statistics/…        of network cards; not of what has no device
//   class/infiniband/*/ports/*/counters/…            of InfiniBand ports
// Sources: the kernel's Documentation/ABI/testing/sysfs-devices-edac, sysfs-devices-system-cpu,
// sysfs-class-net, sysfs-class-net-statistics, and ABI/stable/sysfs-class-infiniband.
#pragma once

#include <filesystem>
#include <vector>

#include "launcher/health/health_rules.h"

namespace lockstep::launcher::health {

// What is there and can be read below `sys`. A file that is none, or holds no number, is left out;
// a number for which there is no room counts as the largest one.
std::vector<Counter> read_sysfs(const std::filesystem::path& sys);

}  // namespace lockstep::launcher::health
