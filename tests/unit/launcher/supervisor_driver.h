// Drives a Supervisor without processes: feeds events and keeps what was asked for, as words.
#pragma once

#include "launcher/control/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "base/text.h"

namespace lockstep::launcher::control {

inline constexpr int64_t kSecond = 1'000'000'000;

inline std::string name_of(const JobAction& action) {
  if (const auto* spawn = std::get_if<Prepare>(&action))
    return text("spawn ", spawn->generation, " x", spawn->world_size);
  if (std::holds_alternative<TermWorkers>(action)) return "term";
  if (std::holds_alternative<KillWorkers>(action)) return "kill";
  if (std::holds_alternative<ChangeWorkers>(action)) return "change";
  if (const auto* slow = std::get_if<ReplaceRank>(&action)) return text("replace ", slow->rank);
  if (const auto* finish = std::get_if<Finish>(&action))
    return text("finish ", finish->exit_status);
  return "record " + std::get<LoggedEvent>(action).event;
}

inline WorkerExit ended(int rank, int exit_code, int64_t committed = -1) {
  WorkerExit exit;
  exit.rank = rank;
  exit.exit_code = exit_code;
  exit.progress.committed_step = committed;
  return exit;
}

inline WorkerExit killed(int rank, int signal, int64_t committed = -1) {
  WorkerExit exit = ended(rank, 0, committed);
  exit.signal = signal;
  return exit;
}

// Feeds events and keeps what was asked for: "spawn 0 x2", "kill", …; records apart.
class Driver {
 public:
  explicit Driver(SupervisorOptions options) : supervisor(std::move(options)) {}

  std::vector<std::string> on(const JobEvent& event) {
    std::vector<std::string> deeds;
    for (const JobAction& action : supervisor.on(event, now)) {
      if (const auto* record = std::get_if<LoggedEvent>(&action)) {
        records.push_back(record->event);
        if (record->event == "failure_detected") error = record->error, blamed = record->rank;
      } else {
        deeds.push_back(name_of(action));
        if (deeds.back() == "kill") killed_all = true;
        if (deeds.back().starts_with("spawn")) killed_all = false;
        if (const auto* finish = std::get_if<Finish>(&action)) reason = finish->reason;
      }
    }
    return deeds;
  }
  // A SIGKILL after "kill" was asked for is the agents'; `died` says that one is not.
  std::vector<std::string> exits(std::vector<WorkerExit> all) {
    for (WorkerExit& exit : all)
      if (killed_all && exit.signal == SIGKILL) exit.agent_did = AgentDid::kKilled;
    return died(std::move(all));
  }
  std::vector<std::string> died(std::vector<WorkerExit> all) {
    return on(WorkersExited{std::move(all), now});
  }
  Driver& start() {
    on(Begin{});
    on(Started{});
    return *this;
  }
  // All ranks show the same page.
  Tick page(int64_t step, Phase phase = Phase::kStep, int64_t committed = -1,
            SavePhase save = SavePhase::kIdle) const {
    Progress progress;
    progress.step = step;
    progress.phase = phase;
    progress.save_phase = save;
    progress.committed_step = committed;
    return {std::vector<Sample>(static_cast<size_t>(supervisor.world_size()), {progress})};
  }
  std::vector<std::string> tick(int64_t step, Phase phase = Phase::kStep, int64_t committed = -1,
                                SavePhase save = SavePhase::kIdle) {
    return on(page(step, phase, committed, save));
  }
  // So much time passes, with a look every half second, as an agent has: at `seen`.
  std::vector<std::string> wait(double seconds, const Tick& seen) {
    std::vector<std::string> deeds;
    for (int64_t left = static_cast<int64_t>(seconds * 2); left > 0; --left) {
      now += kSecond / 2;
      for (std::string& deed : on(seen)) deeds.push_back(std::move(deed));
    }
    return deeds;
  }
  // Rank 0 is killed and the others reaped: a whole failure, whatever follows.
  std::vector<std::string> fail(int64_t committed = -1) {
    auto deeds = exits({killed(0, SIGKILL, committed)});
    std::vector<WorkerExit> rest;
    for (int rank = 1; rank < supervisor.world_size(); ++rank)
      rest.push_back(killed(rank, SIGKILL));
    if (!rest.empty()) deeds = exits(rest);
    return deeds;
  }

  Supervisor supervisor;
  int64_t now = kSecond;
  std::vector<std::string> records;
  std::string reason;  // of the end
  std::string error;   // of the last failure: what its rank had logged
  int blamed = -1;     // ... and that rank
  bool killed_all = false;
};

inline SupervisorOptions workers(int64_t count) {
  SupervisorOptions options;
  options.nproc_per_node = {count};
  return options;
}

}  // namespace lockstep::launcher::control
