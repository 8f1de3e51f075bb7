#include "layout/device_rates.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace lockstep::layout {
namespace {

constexpr double kAbove0 = 1e-9;

constexpr std::array kFields{
    RateField{"bf16_peak_tflops", &DeviceRates::bf16_peak_tflops,
              "dense peak of the data sheet, for MFU", kAbove0},
    RateField{"bf16_gemm_tflops", &DeviceRates::bf16_gemm_tflops,
              "reached by large products in bf16", kAbove0},
    RateField{"fp32_gemm_tflops", &DeviceRates::fp32_gemm_tflops, "… in fp32, without TF32",
              kAbove0},
    RateField{"attention_share", &DeviceRates::attention_share,
              "of the products' rate that attention reaches, forward", kAbove0},
    RateField{"attention_backward_share", &DeviceRates::attention_backward_share, "… backward",
              kAbove0},
    RateField{"memory_gb_per_s", &DeviceRates::memory_gb_per_s,
              "read and written by products, copies and fills", kAbove0},
    RateField{"bf16_kernel_share", &DeviceRates::bf16_kernel_share,
              "of it that our kernels reach on bf16", kAbove0},
    RateField{"fp32_kernel_share", &DeviceRates::fp32_kernel_share, "… on fp32", kAbove0},
    RateField{"exponentials_per_ns", &DeviceRates::exponentials_per_ns,
              "exp() of kernels, of the whole device", kAbove0},
    RateField{"kernel_us", &DeviceRates::kernel_us, "overhead of the device for each kernel", 0},
    RateField{"launch_us", &DeviceRates::launch_us, "of the host for each kernel; 0 on a CPU", 0},
    RateField{"multiprocessors", &DeviceRates::multiprocessors, "0: a CPU", 0},
    RateField{"compute_capability", &DeviceRates::compute_capability,
              "9.0 is Hopper; attention depends on it; 0 on a CPU", 0},
    RateField{"memory_gib", &DeviceRates::memory_gib, "that a process can have", kAbove0},
    RateField{"context_gib", &DeviceRates::context_gib,
              "of it for the driver's context and the libraries' code", 0},
    RateField{"ranks_per_node", &DeviceRates::ranks_per_node, "where --ranks-per-node does not say",
              1},
    RateField{"node_gb_per_s", &DeviceRates::node_gb_per_s,
              "a rank receives from ranks of its node, in collectives", kAbove0},
    RateField{"network_gb_per_s", &DeviceRates::network_gb_per_s,
              "a rank receives from other nodes", kAbove0},
    RateField{"collective_us", &DeviceRates::collective_us, "of the host to start a collective", 0},
    RateField{"host_link_gb_per_s", &DeviceRates::host_link_gb_per_s,
              "between the device and pinned host memory, one way", kAbove0},
    RateField{"host_memory_gb_per_s", &DeviceRates::host_memory_gb_per_s,
              "of the host's memory, a rank", kAbove0},
    RateField{"host_network_gb_per_s", &DeviceRates::host_network_gb_per_s,
              "a rank receives over Gloo", kAbove0},
    RateField{"host_collective_us", &DeviceRates::host_collective_us, "of a small one over Gloo",
              0},
};

// Sources. [D] NVIDIA's data sheets (H100, H200 and A100 Tensor Core GPU, GH200 Grace Hopper
// Superchip): dense peaks (half of the figures with sparsity), memory, NVLink (half of the sum of
// both ways), PCIe. [M] measured on one H100 of 80 GB HBM3 with CUDA 13.0 (docs/PERFORMANCE.md).
// [F] FlashAttention-2 (arXiv 2307.08691): up to 230 TFLOP/s forward and 200 backward on an A100.
// [E] estimates that nobody here has measured.
//   products     Hopper: 690 to 790 TFLOP/s in steps of 0.5B and of an 8B's layers; 700 fits four
//                whole steps best [M]. Ampere: 80 % of the peak [E]
//   attention    Hopper: 575 forward and 442 backward, deterministic, by cuDNN with heads of 128
//                [M]. Ampere: [F], less a tenth forward for causal masks, and a third backward for
//                those and for the deterministic form [E]
//   memory       nine tenths of [D]; 3.0 TB/s were seen of the H100's 3.35 [M]. fp32 kernels reach
//                85 % of it, bf16 kernels by 16 bytes an access 70 % [E]; when they moved two bytes
//                a thread it was 45 % [M]
//   exp          16 a clock and multiprocessor (CUDA C++ Programming Guide, throughput of
//                arithmetic instructions)
//   links        80 % of NVLink [D]; 400 Gb/s of network a GPU (A100: 200), nine tenths of it [E];
//                85 % of PCIe, on GH200 of C2C [D, E]; Gloo 2 GB/s [E]
//   memory_gib   what CUDA reports as total, about 1 % below [D]
//   collective   a thread for each non-blocking NCCL operation: 100 us [E]
//   launch       of LibTorch's operations, memory of the result included [E]
DeviceRates h100() {
  return {.name = "h100",
          .bf16_peak_tflops = 989,
          .bf16_gemm_tflops = 700,
          .fp32_gemm_tflops = 50,
          .attention_share = 0.82,
          .attention_backward_share = 0.63,
          .memory_gb_per_s = 3015,
          .bf16_kernel_share = 0.7,
          .fp32_kernel_share = 0.85,
          .exponentials_per_ns = 3700,
          .kernel_us = 2.5,
          .launch_us = 6,
          .multiprocessors = 132,
          .compute_capability = 9.0,
          .memory_gib = 79.1,
          .context_gib = 0.75,
          .ranks_per_node = 8,
          .node_gb_per_s = 360,
          .network_gb_per_s = 45,
          .collective_us = 100,
          .host_link_gb_per_s = 54,
          .host_memory_gb_per_s = 50,
          .host_network_gb_per_s = 2,
          .host_collective_us = 500};
}

DeviceRates h200() {
  DeviceRates d = h100();
  d.name = "h200";
  d.memory_gb_per_s = 4320;
  d.memory_gib = 139.8;
  return d;
}

// The one with 96 GB, four to a node.
DeviceRates gh200() {
  DeviceRates d = h100();
  d.name = "gh200";
  d.memory_gb_per_s = 3600;
  d.memory_gib = 94.5;
  d.ranks_per_node = 4;
  d.host_link_gb_per_s = 380;
  d.host_memory_gb_per_s = 400;
  return d;
}

// SXM, 80 GB.
DeviceRates a100() {
  DeviceRates d = h100();
  d.name = "a100";
  d.bf16_peak_tflops = 312;
  d.bf16_gemm_tflops = 250;
  d.fp32_gemm_tflops = 16;
  d.attention_share = 0.76;
  d.attention_backward_share = 0.56;
  d.memory_gb_per_s = 1835;
  d.exponentials_per_ns = 2400;
  d.multiprocessors = 108;
  d.compute_capability = 8.0;
  d.memory_gib = 79.2;
  d.context_gib = 0.6;
  d.node_gb_per_s = 240;
  d.network_gb_per_s = 22;
  d.host_link_gb_per_s = 27;
  d.host_memory_gb_per_s = 25;
  return d;
}

const std::array<DeviceRates, 4>& built_in() {
  static const std::array<DeviceRates, 4> devices{h100(), h200(), a100(), gh200()};
  return devices;
}

}  // namespace

std::span<const RateField> rate_fields() { return kFields; }

const DeviceRates* built_in_device(std::string_view name) {
  for (const DeviceRates& device : built_in())
    if (device.name == name) return &device;
  return nullptr;
}

std::string built_in_devices() {
  std::string names;
  for (const DeviceRates& device : built_in()) names += (names.empty() ? "" : ", ") + device.name;
  return names;
}

Result<DeviceRates> rates_of(const std::string& name, const std::vector<TomlNumber>& numbers) {
  std::vector<std::string> keys;
  for (const RateField& field : kFields) keys.push_back(field.key);
  for (const TomlNumber& number : numbers) {
    if (std::count(keys.begin(), keys.end(), number.key) > 0) continue;
    const std::string near = nearest(number.key, keys);
    return Error{Code::kConfig, text(number.place, ": unknown key ", number.key,
                                     near.empty() ? "" : text("; did you mean ", near, "?"))};
  }
  DeviceRates rates;
  rates.name = name;
  for (const RateField& field : kFields) {
    const auto found = std::find_if(numbers.begin(), numbers.end(),
                                    [&](const TomlNumber& n) { return n.key == field.key; });
    if (found == numbers.end())
      return Error{Code::kConfig,
                   text(name, ": the key ", field.key, " is missing (", field.help, ")")};
    if (!(found->value >= field.least))
      return Error{Code::kConfig,
                   text(found->place, ": ", field.key, " = ", found->value, "; it is ",
                        field.least == kAbove0 ? "above 0" : text("at least ", field.least))};
    rates.*field.member = found->value;
  }
  return rates;
}

}  // namespace lockstep::layout
