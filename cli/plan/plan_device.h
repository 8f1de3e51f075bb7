// `lockstep plan --device`: time, MFU and memory on a device, as tables and as JSON.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "layout/device_memory.h"
#include "layout/step_time.h"

namespace lockstep::cli {

// `words`: a built-in device's name, or a file of its keys. Errors: kConfig, naming the key.
Result<layout::DeviceRates> device_of(const std::string& words);

// A step with parallelism.reshard_after_forward = node.
struct NodeReshard {
  layout::StepTime time;
  int64_t more_bytes = 0;  // of the device
};

struct DevicePlan {
  layout::DeviceRates rates;
  layout::StepTime time;
  std::optional<layout::DeviceMemory> memory;  // none of a CPU
  // Where the config has it not, less would come from other nodes, and it would fit.
  std::optional<NodeReshard> node_reshard;
};
// Requires: `plan` is that of the others.
DevicePlan plan_device(const Config& config, const layout::ModelSpec& spec,
                       const layout::Ranks& ranks, const layout::MemoryPlan& plan,
                       const layout::DeviceRates& rates);

void print_device(std::ostream& out, const DevicePlan& device);
nlohmann::ordered_json device_json(const DevicePlan& device);

}  // namespace lockstep::cli
