// What a device can do, for the prediction of a step's time: `lockstep plan --device`. A built-in
// device, or a file of the same keys.
//
// A rate is what is reached, not what a data sheet promises: bf16_peak_tflops alone is the data
// sheet's, for MFU is measured against it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/toml_numbers.h"
#include "layout/stage_sizes.h"

namespace lockstep::layout {

struct DeviceRates {
  std::string name;
  double bf16_peak_tflops = 0;
  double bf16_gemm_tflops = 0, fp32_gemm_tflops = 0;
  double attention_share = 0, attention_backward_share = 0;
  double memory_gb_per_s = 0;
  double bf16_kernel_share = 0, fp32_kernel_share = 0;
  double exponentials_per_ns = 0;
  double kernel_us = 0, launch_us = 0;
  double multiprocessors = 0, compute_capability = 0;
  double memory_gib = 0, context_gib = 0;
  double ranks_per_node = 0;
  double node_gb_per_s = 0, network_gb_per_s = 0, collective_us = 0;
  double host_link_gb_per_s = 0, host_memory_gb_per_s = 0;
  double host_network_gb_per_s = 0, host_collective_us = 0;

  // Else a CPU: a rank computes and copies in one line of work, attention goes block by block.
  bool gpu() const { return multiprocessors > 0; }
  WorkSizes sizes() const { return gpu() ? WorkSizes::kGpu : WorkSizes::kCpu; }
};

// A key of a file, and of --json.
struct RateField {
  const char* key;
  double DeviceRates::*member;
  const char* help;
  double least;  // a smaller number is an error; 0 as well, where nothing is divided by it
};
std::span<const RateField> rate_fields();

// h100, h200, a100, gh200; null: no such device.
const DeviceRates* built_in_device(std::string_view name);
// "h100, h200, …"
std::string built_in_devices();

// Each key once. Errors: kConfig, naming the key that is unknown, missing or too small.
Result<DeviceRates> rates_of(const std::string& name, const std::vector<TomlNumber>& numbers);

}  // namespace lockstep::layout
