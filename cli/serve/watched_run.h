// One run as the dashboard knows it: its steps in memory, its state, and its facts as JSON.
// Reads a run's folder again only where that has changed. Thread: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/json.h"
#include "cli/serve/run_marks.h"
#include "cli/serve/run_series.h"
#include "cli/shared/run_listing.h"
#include "cli/status/run_status.h"

namespace lockstep::cli {

class WatchedRun {
 public:
  // Borrows file system and clock.
  WatchedRun(FileSystem& file_system, Clock& clock, FoundRun found);

  // The steps that are logged by now. What cannot be read stays as it was read before.
  const RunSeries& series();
  // Forgets the steps in memory; series() reads them anew.
  void forget_series() { series_ = RunSeries(); }
  // How it is: state, newest step, and what it was started with. One line of the list of runs.
  nlohmann::ordered_json summary();
  // The summary; `status` as `lockstep status --json` prints it; marks, events, counts, and
  // metrics.json.
  nlohmann::ordered_json details();
  // run_args.json; null where there is none.
  nlohmann::ordered_json run_args() const;
  // Seconds a step by phase, of the whole run, from metrics.json; empty object where it says none.
  nlohmann::ordered_json logged_phases() const;

 private:
  void look();
  std::vector<int64_t> kept_checkpoints() const;
  std::string changed_at() const;
  nlohmann::ordered_json document(const char* name) const;

  FileSystem& file_system_;
  Clock& clock_;
  const FoundRun found_;
  RunObserver observer_;
  RunSeries series_;
  std::optional<RunStatus> status_;  // none: it cannot be read, and trouble_ says why
  std::string trouble_;
  std::string looked_at_;  // changed_at() of the look before
  int64_t looked_ns_ = 0;
  double logged_unix_s_ = -1;
  nlohmann::ordered_json args_;
};

}  // namespace lockstep::cli
