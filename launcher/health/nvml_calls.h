// The functions of NVIDIA's management library (NVML) that say how a GPU is, behind an interface:
// nvml_library.cc hands them to the library of the driver, a test answers them. They are NVML's
// own, one to one. Thread: one.
#pragma once

#include <cstdint>
#include <memory>

namespace lockstep::launcher::health {

// With the numbers of nvmlReturn_t; others mean that something is not known or not supported.
enum class NvmlResult : int { kSuccess = 0, kNotSupported = 3, kTimeout = 10, kGpuIsLost = 15 };

using NvmlDevice = struct NvmlDeviceOpaque*;

struct NvmlRemappedRows {
  bool pending = false;  // a row was replaced, and is in use once the GPU is reset
  bool failed = false;   // a row could not be replaced
};

// Bits of nvmlDeviceGetCurrentClocksThrottleReasons, "event reasons" in newer headers.
inline constexpr uint64_t kNvmlHwSlowdown = 0x08, kNvmlHwThermal = 0x40, kNvmlHwPowerBrake = 0x80;

struct NvmlXid {
  NvmlDevice device = nullptr;
  uint64_t number = 0;
};

class Nvml {
 public:
  virtual ~Nvml() = default;
  virtual NvmlResult device_count(uint32_t& count) = 0;
  virtual NvmlResult device(uint32_t index, NvmlDevice& device) = 0;
  // Since the driver was loaded.
  virtual NvmlResult uncorrected_errors(NvmlDevice device, uint64_t& count) = 0;
  virtual NvmlResult corrected_errors(NvmlDevice device, uint64_t& count) = 0;
  virtual NvmlResult remapped_rows(NvmlDevice device, NvmlRemappedRows& rows) = 0;
  virtual NvmlResult throttle_reasons(NvmlDevice device, uint64_t& bits) = 0;
  // Xids of this device are kept from now on for take_xid.
  virtual NvmlResult watch_xids(NvmlDevice device) = 0;
  // The next one; kTimeout at once where there is none.
  virtual NvmlResult take_xid(NvmlXid& xid) = 0;
};

// The driver's, libnvidia-ml.so.1; null where there is none, or no GPU that it drives.
std::unique_ptr<Nvml> open_nvml();

}  // namespace lockstep::launcher::health
