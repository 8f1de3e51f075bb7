#include "launcher/health/nvml_counters.h"

#include <algorithm>
#include <string>

#include "base/text.h"

namespace lockstep::launcher::health {
namespace {

constexpr int kMostXids = 1000;  // taken at one look

struct Xid {
  uint64_t number;
  const char* what;
  Meaning meaning;
};
constexpr Xid kXids[] = {
    {48, "uncorrectable memory error", Meaning::kFailed},
    {63, "a row of memory is to be replaced", Meaning::kWarning},
    {64, "a row of memory could not be replaced", Meaning::kFailed},
    {74, "NVLink error", Meaning::kFailed},
    {79, "fallen off the bus", Meaning::kFailed},
    {92, "many corrected memory errors", Meaning::kWarning},
    {94, "uncorrectable memory error, contained", Meaning::kFailed},
    {95, "uncorrectable memory error, not contained", Meaning::kFailed},
    {119, "its system processor does not answer", Meaning::kFailed},
    {120, "its system processor has failed", Meaning::kFailed},
    {140, "unrecovered memory error", Meaning::kFailed},
};

std::string name_of(uint32_t index) { return text("GPU ", index); }

Counter state(std::string what, Meaning meaning, bool lasts) {
  return {std::move(what), meaning, Kind::kState, lasts ? 1 : 0};
}

int64_t clamped(uint64_t count) {
  return static_cast<int64_t>(std::min(count, static_cast<uint64_t>(INT64_MAX)));
}

}  // namespace

NvmlCounters::NvmlCounters(Nvml& nvml) : nvml_(nvml) {
  uint32_t count = 0;
  if (nvml.device_count(count) != NvmlResult::kSuccess) return;
  for (uint32_t index = 0; index < count; ++index) {
    Gpu gpu{.index = index, .device = nullptr, .xids = {}};
    if (nvml.device(index, gpu.device) != NvmlResult::kSuccess) continue;
    (void)nvml.watch_xids(gpu.device);  // not every GPU can; its other counters are read
    gpus_.push_back(std::move(gpu));
  }
}

std::vector<Counter> NvmlCounters::read() {
  take_xids();
  std::vector<Counter> counters;
  for (const Gpu& gpu : gpus_) {
    add_memory(gpu, counters);
    add_slowdowns(gpu, counters);
    for (const Xid& xid : kXids) {
      const auto came = gpu.xids.find(xid.number);
      counters.push_back({text("Xid ", xid.number, " (", xid.what, ") of ", name_of(gpu.index)),
                          xid.meaning, Kind::kCount, came == gpu.xids.end() ? 0 : came->second});
    }
  }
  return counters;
}

void NvmlCounters::add_memory(const Gpu& gpu, std::vector<Counter>& counters) {
  const std::string name = name_of(gpu.index);
  uint64_t count = 0;
  const NvmlResult uncorrected = nvml_.uncorrected_errors(gpu.device, count);
  counters.push_back(
      state(name + " is lost", Meaning::kFailed, uncorrected == NvmlResult::kGpuIsLost));
  if (uncorrected == NvmlResult::kSuccess)
    counters.push_back(
        {"uncorrected memory errors of " + name, Meaning::kFailed, Kind::kCount, clamped(count)});
  if (nvml_.corrected_errors(gpu.device, count) == NvmlResult::kSuccess)
    counters.push_back(
        {"corrected memory errors of " + name, Meaning::kWarning, Kind::kCount, clamped(count)});
  NvmlRemappedRows rows;
  if (nvml_.remapped_rows(gpu.device, rows) != NvmlResult::kSuccess) return;
  counters.push_back(state("a row of memory of " + name + " could not be replaced",
                           Meaning::kFailed, rows.failed));
  counters.push_back(state("a row of memory of " + name + " is replaced once the GPU is reset",
                           Meaning::kWarning, rows.pending));
}

// Whether that slows down the run is for the watch on slow ranks to say (control/straggler.h).
void NvmlCounters::add_slowdowns(const Gpu& gpu, std::vector<Counter>& counters) {
  uint64_t bits = 0;
  if (nvml_.throttle_reasons(gpu.device, bits) != NvmlResult::kSuccess) return;
  const bool heat = (bits & kNvmlHwThermal) != 0, power = (bits & kNvmlHwPowerBrake) != 0;
  const bool other = (bits & kNvmlHwSlowdown) != 0 && !heat && !power;
  const std::string slowed = name_of(gpu.index) + " is slowed down by its hardware";
  counters.push_back(state(slowed + ": heat", Meaning::kWarning, heat));
  counters.push_back(state(slowed + ": power", Meaning::kWarning, power));
  counters.push_back(state(slowed, Meaning::kWarning, other));
}

void NvmlCounters::take_xids() {
  NvmlXid xid;
  for (int i = 0; i < kMostXids && nvml_.take_xid(xid) == NvmlResult::kSuccess; ++i)
    for (Gpu& gpu : gpus_)
      if (gpu.device == xid.device) ++gpu.xids[xid.number];
}

}  // namespace lockstep::launcher::health
