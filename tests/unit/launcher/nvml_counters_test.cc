#include "launcher/health/nvml_counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <set>
#include <string>

namespace lockstep::launcher::health {
namespace {

using testing::HasSubstr;

struct FakeGpu {
  NvmlResult answers = NvmlResult::kSuccess;  // to all questions of this GPU
  uint64_t uncorrected = 0, corrected = 0, reasons = 0;
  NvmlRemappedRows rows;
};

// Two GPUs; the handle of one is its address.
class FakeNvml : public Nvml {
 public:
  std::array<FakeGpu, 2> gpus;
  std::deque<std::pair<int, uint64_t>> xids;  // GPU, number
  NvmlResult counts = NvmlResult::kSuccess;
  std::set<NvmlDevice> watched;

  NvmlResult device_count(uint32_t& count) override {
    count = static_cast<uint32_t>(gpus.size());
    return counts;
  }
  NvmlResult device(uint32_t index, NvmlDevice& device) override {
    device = handle(index);
    return NvmlResult::kSuccess;
  }
  NvmlResult uncorrected_errors(NvmlDevice device, uint64_t& count) override {
    return take(device, &FakeGpu::uncorrected, count);
  }
  NvmlResult corrected_errors(NvmlDevice device, uint64_t& count) override {
    return take(device, &FakeGpu::corrected, count);
  }
  NvmlResult remapped_rows(NvmlDevice device, NvmlRemappedRows& rows) override {
    return take(device, &FakeGpu::rows, rows);
  }
  NvmlResult throttle_reasons(NvmlDevice device, uint64_t& bits) override {
    return take(device, &FakeGpu::reasons, bits);
  }
  NvmlResult watch_xids(NvmlDevice device) override {
    watched.insert(device);
    return NvmlResult::kSuccess;
  }
  NvmlResult take_xid(NvmlXid& xid) override {
    if (xids.empty()) return NvmlResult::kTimeout;
    xid = {handle(static_cast<size_t>(xids.front().first)), xids.front().second};
    xids.pop_front();
    return NvmlResult::kSuccess;
  }

 private:
  NvmlDevice handle(size_t index) { return reinterpret_cast<NvmlDevice>(&gpus[index]); }
  template <typename Value>
  NvmlResult take(NvmlDevice device, Value FakeGpu::*member, Value& value) {
    const auto& gpu = *reinterpret_cast<FakeGpu*>(device);
    if (gpu.answers == NvmlResult::kSuccess) value = gpu.*member;
    return gpu.answers;
  }
};

// What is known after the GPUs were sound at first, and `change` was made to them.
template <typename Change>
Health after(Change change) {
  FakeNvml nvml;
  NvmlCounters counters(nvml);
  EXPECT_EQ(nvml.watched.size(), nvml.gpus.size());
  HealthRules rules;
  EXPECT_EQ(rules.note(counters.read(), 0), Health{});
  change(nvml);
  return rules.note(counters.read(), 1);
}

TEST(NvmlCounters, WhatFailsAGpuNamesIt) {
  EXPECT_EQ(after([](FakeNvml& nvml) { nvml.gpus[1].uncorrected = 2; }).failed,
            "uncorrected memory errors of GPU 1: 2 more");
  EXPECT_EQ(after([](FakeNvml& nvml) { nvml.gpus[0].rows.failed = true; }).failed,
            "a row of memory of GPU 0 could not be replaced");
  EXPECT_EQ(after([](FakeNvml& nvml) { nvml.gpus[1].answers = NvmlResult::kGpuIsLost; }).failed,
            "GPU 1 is lost");
}

TEST(NvmlCounters, WhatIsOnlyWarnedOf) {
  const auto expect_warned = [](const Health& health, const std::string& line) {
    EXPECT_EQ(health.failed, "");
    EXPECT_THAT(health.lines, testing::ElementsAre(line));
  };
  expect_warned(after([](FakeNvml& nvml) { nvml.gpus[0].corrected = 1; }),
                "corrected memory errors of GPU 0: 1 more");
  expect_warned(after([](FakeNvml& nvml) { nvml.gpus[0].rows.pending = true; }),
                "a row of memory of GPU 0 is replaced once the GPU is reset");
  const std::string slowed = "GPU 1 is slowed down by its hardware";
  const auto slow = [](uint64_t bits) {
    return after([bits](FakeNvml& nvml) { nvml.gpus[1].reasons = bits; });
  };
  expect_warned(slow(kNvmlHwSlowdown | kNvmlHwThermal), slowed + ": heat");
  expect_warned(slow(kNvmlHwSlowdown | kNvmlHwPowerBrake), slowed + ": power");
  expect_warned(slow(kNvmlHwSlowdown), slowed);
  EXPECT_EQ(slow(0x01 | 0x04), Health{}) << "idle, and the power cap that was set";
}

TEST(NvmlCounters, XidsOfHardwareFailAGpuAndThoseOfProgramsDoNot) {
  for (const uint64_t number : {48, 64, 74, 79, 94, 95, 119, 120, 140}) {
    const Health health = after([number](FakeNvml& nvml) { nvml.xids = {{1, number}}; });
    EXPECT_THAT(health.failed, HasSubstr("Xid " + std::to_string(number) + " (")) << number;
    EXPECT_THAT(health.failed, HasSubstr(") of GPU 1: 1 more")) << number;
  }
  for (const uint64_t number : {63, 92}) {
    const Health health = after([number](FakeNvml& nvml) { nvml.xids = {{0, number}}; });
    EXPECT_EQ(health.failed, "") << number;
    EXPECT_EQ(health.lines.size(), 1u) << number;
  }
  for (const uint64_t number : {13, 31, 43, 45, 0, 999})
    EXPECT_EQ(after([number](FakeNvml& nvml) { nvml.xids = {{0, number}}; }), Health{}) << number;
}

TEST(NvmlCounters, ADriverThatAnswersNothingSaysNothing) {
  EXPECT_EQ(after([](FakeNvml& nvml) {
              for (FakeGpu& gpu : nvml.gpus) {
                gpu = {NvmlResult::kNotSupported, 5, 5, kNvmlHwSlowdown, {true, true}};
              }
            }),
            Health{});
  FakeNvml nvml;
  nvml.counts = static_cast<NvmlResult>(999);
  EXPECT_TRUE(NvmlCounters(nvml).read().empty());
}

}  // namespace
}  // namespace lockstep::launcher::health
