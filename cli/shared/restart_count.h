// How often the launcher restarted a run, from the events that it logged (events.jsonl).
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::cli {

// stopped: it was asked to, and has saved.
inline bool ends_launch(std::string_view event) {
  return event == "done" || event == "stopped" || event == "failed";
}

// A restart is a start of workers after a failure. The same command, typed again after the run was
// done, was stopped, or had lost its agent, is a launch of its own.
class RestartCount {
 public:
  // In the order of the file.
  void on(std::string_view event) {
    if (event == "failure_detected" || event == "node_lost") failed_ = true;
    if (ends_launch(event)) failed_ = false;
    if (event != "generation_start") return;
    restarts_ += failed_ ? 1 : 0;
    failed_ = false;
  }
  int64_t restarts() const { return restarts_; }

 private:
  bool failed_ = false;
  int64_t restarts_ = 0;
};

}  // namespace lockstep::cli
