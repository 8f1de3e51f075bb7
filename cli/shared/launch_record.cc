#include "cli/shared/launch_record.h"

#include <algorithm>
#include <utility>

#include "cli/shared/json_fields.h"
#include "cli/shared/restart_count.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

// Follows the events of one run.
class LaunchReader {
 public:
  void on(const json& event) {
    const std::string name = string_or_empty(event, "event");
    if (begins_launch(name)) {
      launches_.emplace_back();
      started_ = failed_ = false;
      node_event_ = kNone;
    }
    LaunchRecord& launch = launches_.back();
    const size_t index = launch.events.size();
    launch.events.push_back(event);
    launch.generation = std::max(launch.generation, integer_or(event, "generation", -1));
    if (const int64_t ranks = integer_or(event, "world_size", 0); ranks > 0)
      launch.world_size = ranks;
    if (name == "generation_start") on_start();
    if (name == "spawned") places_ = strings_of(event, "nodes");
    if (name == "node_lost" || name == "node_barred" || name == "node_replaced") {
      if (node_event_ == kNone) node_event_ = index;
    }
    if (name == "failure_detected") on_failure(event, index);
    if (name == "first_step" || name == "recovered") launch.stepped = true;
    if (name == "recovered" && !launch.failures.empty()) on_recovery(event);
    if (name == "stop_requested" && launch.stop_reason.empty()) {
      launch.stop_reason = string_or_empty(event, "reason");
      launch.stop_unix_s = number_or(event, "t", -1);
    }
    if (ends_launch(name)) on_end(event, name);
  }
  std::vector<LaunchRecord> take() { return std::move(launches_); }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  bool begins_launch(const std::string& name) const {
    if (launches_.empty() || !launches_.back().end.empty()) return true;
    return name == "generation_start" && started_ && !failed_;
  }

  void on_start() {
    started_ = true;
    failed_ = false;
    node_event_ = kNone;
  }

  void on_failure(const json& event, size_t index) {
    LaunchRecord& launch = launches_.back();
    Failure failure;
    failure.first_event = node_event_ == kNone ? index : node_event_;
    failure.unix_s = number_or(event, "t", -1);
    failure.generation = integer_or(event, "generation", -1);
    failure.world_size = integer_or(event, "world_size", -1);
    failure.rank = integer_or(event, "rank", -1);
    failure.step = integer_or(event, "step", -1);
    failure.pid = integer_or(event, "pid", -1);
    failure.node = string_or_empty(event, "node");
    failure.reason = string_or_empty(event, "reason");
    failure.error = string_or_empty(event, "error");
    failure.exit = launcher::parse_cause(failure.reason);
    const auto rank = static_cast<size_t>(failure.rank);
    if (failure.rank >= 0 && rank < places_.size())
      failure.local_rank =
          std::count(places_.begin(), places_.begin() + failure.rank, places_[rank]);
    if (node_event_ != kNone) {
      const json& before = launch.events[node_event_];
      const std::string name = string_or_empty(before, "event");
      failure.node_reason = string_or_empty(before, "reason");
      failure.node_barred = name == "node_barred";
      failure.node_replaced = name == "node_replaced";
    }
    failed_ = true;
    launch.failures.push_back(std::move(failure));
  }

  void on_recovery(const json& event) {
    Failure& failure = launches_.back().failures.back();
    failure.recovered_s = number_or(event, "t", -1);
    failure.next_world_size = integer_or(event, "world_size", -1);
    failure.resumed_step = integer_or(event, "step", -1);
    failure.redone_steps = integer_or(event, "redone_steps", -1);
    failure.redone_s = number_or(event, "redone_s", -1);
  }

  void on_end(const json& event, const std::string& name) {
    LaunchRecord& launch = launches_.back();
    launch.end = name;
    launch.end_reason = string_or_empty(event, "reason");
    launch.exit_status = integer_or(event, "exit_status", -1);
    launch.end_unix_s = number_or(event, "t", -1);
  }

  std::vector<LaunchRecord> launches_;
  std::vector<std::string> places_;  // nodes by rank, of the newest generation
  size_t node_event_ = kNone;        // what happened to a node of it
  bool started_ = false, failed_ = false;
};

}  // namespace

// A loss that is not finite ends with the same status, in a step.
bool LaunchRecord::refused() const {
  return exit_status == launcher::kExitConfig && !stepped &&
         std::all_of(failures.begin(), failures.end(),
                     [](const Failure& failure) { return failure.step <= 0; });
}

std::string LaunchRecord::refusal() const {
  return failures.empty() || failures.back().error.empty() ? end_reason : failures.back().error;
}

bool newest_was_refused(const std::vector<LaunchRecord>& launches) {
  return launches.size() > 1 && launches.back().refused() &&
         std::any_of(launches.begin(), launches.end() - 1,
                     [](const LaunchRecord& launch) { return launch.stepped; });
}

std::vector<LaunchRecord> launches_of(const std::vector<json>& events) {
  LaunchReader reader;
  for (const json& event : events) reader.on(event);
  return reader.take();
}

}  // namespace lockstep::cli
