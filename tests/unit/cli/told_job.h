// A job without processes whose run folder is what the product leaves behind: a Supervisor decides,
// and its events are written as an agent writes them. Made for tests of `lockstep why`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/why/account_facts.h"
#include "cli/why/account_report.h"
#include "launcher/control/supervisor.h"
#include "launcher/host/run_files.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {

// A worker that ended; `error` is the last one that it logged.
launcher::WorkerExit exit_of(int rank, int code, const std::string& error = "");
launcher::WorkerExit killed_by(int rank, int signal);
// What a person should do, a line each.
std::string things_to_do(const Account& account);

class ToldJob {
 public:
  static constexpr pid_t kNobody = 999999999;

  // Of `nodes` with `per_node` ranks each; its first generation has started.
  explicit ToldJob(int64_t per_node, std::vector<std::string> nodes = {"node1"},
                   const launcher::control::SupervisorOptions& options = {});

  // Another command in the same folder.
  void launch(int64_t per_node, launcher::control::SupervisorOptions options = {});
  // So many steps of half a second each. `saved`: there is a checkpoint of this step.
  void steps(int64_t first, int64_t last, int64_t saved = -1);
  // The worker ends first; the others end as `others` says, or are killed by their agent.
  void fails(launcher::WorkerExit exit, std::vector<launcher::WorkerExit> others = {});
  void all_end(int code);  // alike
  // The next generation trains on from `first`.
  void recovers(int64_t first, int64_t last);
  // The next generation has these nodes; `reason`: why there is none.
  void nodes_left(std::vector<std::string> nodes, const std::string& reason = "");
  void says(const std::string& event, const std::string& reason);  // of a node
  void feed(const launcher::control::JobEvent& event);
  void start();
  void wait(double seconds);
  // No page changes for so long; `stopped`: the last rank is in state T.
  void silent(double seconds, bool stopped);
  void run_args(bool on_gpus);
  void save(int64_t step);
  void write(const std::string& name, const std::string& contents);
  // workers.json
  void publish(const std::string& state, int exit_status, pid_t agent);

  // A minute later.
  Account account() const;
  RunStatus status() const;
  std::filesystem::path folder() const { return dir_.path(); }

 private:
  Progress progress() const;
  launcher::WorkerExit placed(launcher::WorkerExit exit) const;
  void tick(int64_t step);
  const std::string& node_of(int64_t rank) const;
  void log(launcher::LoggedEvent event);
  void log_step(int64_t step);
  void conclude(const launcher::control::Finish& end);

  test_support::TempDir dir_;
  std::vector<std::string> nodes_, nodes_next_;
  std::optional<launcher::control::Supervisor> supervisor_;
  int64_t now_ns_, generation_ = 0, world_size_ = 0, step_ = 0, first_ = 0, committed_ = -1;
  std::string steps_;
};

}  // namespace lockstep::cli
