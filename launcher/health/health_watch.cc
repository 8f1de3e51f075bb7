#include "launcher/health/health_watch.h"

#include <chrono>
#include <utility>

#include "launcher/health/nvml_counters.h"
#include "launcher/health/sysfs_counters.h"

namespace lockstep::launcher::health {
namespace {

constexpr std::chrono::seconds kPatience{1};

Counter silence(bool lasts) {
  return {"cannot read the hardware counters: a file in /sys or a driver hangs", Meaning::kWarning,
          Kind::kState, lasts ? 1 : 0};
}

// Opened at the first look, on its thread: that may hang as well.
struct Gpus {
  bool opened = false;
  std::unique_ptr<Nvml> nvml;
  std::optional<NvmlCounters> counters;

  std::vector<Counter> read() {
    if (!std::exchange(opened, true)) nvml = open_nvml();
    if (!nvml) return {};
    if (!counters) counters.emplace(*nvml);
    return counters->read();
  }
};

}  // namespace

ReadCounters hardware_counters(std::filesystem::path sys) {
  return [sys = std::move(sys), gpus = std::make_shared<Gpus>()] {
    std::vector<Counter> all = read_sysfs(sys);
    for (Counter& counter : gpus->read()) all.push_back(std::move(counter));
    return all;
  };
}

HealthWatch::~HealthWatch() {
  if (!thread_.joinable()) return;
  bool hangs = false;
  if (look_) {
    std::unique_lock lock(look_->mutex);
    hangs = !look_->done.wait_for(lock, kPatience, [&] { return look_->counters.has_value(); });
  }
  hangs ? thread_.detach() : thread_.join();
}

std::optional<Health> HealthWatch::news() {
  const int64_t now_ns = clock_.monotonic_ns();
  std::vector<Counter> counters = take_counters();
  counters.push_back(silence(look_ && now_ns - *began_ns_ >= kSilentNs));
  if (!look_ && (soon_ || !began_ns_ || now_ns - *began_ns_ >= kLookNs)) {
    soon_ = false;
    began_ns_ = now_ns;
    begin_look();
  }
  Health health = rules_.note(counters, now_ns);
  if (health == last_) return std::nullopt;
  last_ = health;
  return health;
}

void HealthWatch::begin_look() {
  look_ = std::make_shared<Look>();
  thread_ = std::thread([look = look_, read = read_] {
    auto counters = read();
    const std::lock_guard lock(look->mutex);
    look->counters = std::move(counters);
    look->done.notify_all();
  });
}

std::vector<Counter> HealthWatch::take_counters() {
  if (!look_) return {};
  std::optional<std::vector<Counter>> counters;
  {
    const std::lock_guard lock(look_->mutex);
    counters = std::exchange(look_->counters, std::nullopt);
  }
  if (!counters) return {};
  thread_.join();
  look_.reset();
  return std::move(*counters);
}

}  // namespace lockstep::launcher::health
