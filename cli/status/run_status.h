// What a run's folder and its processes say about it now: who runs, how fast, what looks wrong.
// Reading changes nothing; any number of readers may look at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/json.h"
#include "base/result.h"
#include "checkpoint/record/suspects.h"
#include "config/config.h"
#include "launcher/host/run_files.h"

namespace lockstep::cli {

// A number nobody knows is -1.
struct RankStatus {
  launcher::Membership::Member member;  // its page as it is now
  bool elsewhere = false;               // on another host: known as of the last workers.json
  bool alive = false, stopped = false;  // stopped: SIGSTOP, or under a debugger
  double age_s = -1;                    // of its last sign of life
  double tokens_per_s = -1;             // of the slots that it computes
  std::string suspect;                  // what looks wrong with it; "": nothing

  const char* phase() const { return alive ? phase_name(member.progress.phase) : "gone"; }
};

struct RunStatus {
  launcher::Membership membership;
  // The membership's; stopped: it ended because somebody asked for it, and resumes; agent_gone: it
  // says "running", and its agent, which ran on this host, is no more; unknown: another agent may
  // take over now, or all of them run on other hosts, and nothing was written for a while. Of a run
  // under srun or torchrun, which has no agent, what its logs say: running, done, stopped, unknown.
  std::string state;
  std::string transport;          // transport_of_run()
  std::vector<RankStatus> ranks;  // by rank
  // Of the last steps that were logged, and of the config.
  int64_t step = -1, planned_steps = -1;
  std::optional<double> loss;
  double tokens_per_s = -1, step_time_s = -1, logged_age_s = -1;
  int64_t checkpoint_step = -1;  // newest on disk that a resume takes
  double checkpoint_age_s = -1;
  int64_t restarts = 0;                         // starts of workers in this folder after a failure
  std::string last_failure;                     // "rank 1 killed by SIGKILL at step 17"
  std::string last_error;                       // that this rank logged before; "": none
  std::string refused;                          // why the newest command was; "": it was not
  bool failed_since_recovery = false;           // or since this launch began
  std::string waiting_for;                      // nodes: "1 are here, at least 2 must be"; "": none
  double waiting_s = -1;                        // since the first such word
  std::vector<checkpoint::Suspects> suspected;  // by audits that found something
  std::vector<std::string> audits;              // a line for each
  std::vector<std::string> notes;               // what cannot be known from this host
  std::string more;           // where more is said of how it ended; "": it is running
  int64_t wanted_nodes = -1;  // that a run which shrinks had at first, if all came

  bool running() const { return state == "running"; }
  bool over() const { return !running() && state != "unknown"; }
  double eta_s() const;  // -1: unknown
};

// Names in each rank's `suspect` what looks wrong with it: gone, stopped, on a node that is silent,
// silent for longer than its phase and the time of a step explain, behind the others, slower than
// they are, a save that failed. Ranks wait for each other: where one is to blame (of several silent
// ones, the one silent longest), the silence of the others is not held against them. Pure.
// Requires: the rest of `status` is filled in.
void find_suspects(RunStatus& status);

// Looks again and again at one run. What changes seldom is read only when it has changed.
// Borrows file system and clock.
class RunObserver {
 public:
  RunObserver(FileSystem& file_system, Clock& clock, std::filesystem::path folder)
      : file_system_(file_system), clock_(clock), folder_(std::move(folder)) {}
  // Errors: kNotFound (no run began in this folder), kCorrupt, kIo: of workers.json. What else
  // cannot be read is unknown.
  Result<RunStatus> look();

 private:
  void add_config(const RunStatus& status);
  void add_logged_steps(RunStatus& status) const;
  void add_rank_rates(RunStatus& status) const;
  void add_events(RunStatus& status);
  void leave_out_refusal(std::vector<nlohmann::json>& events);
  void add_audits(RunStatus& status) const;
  void add_checkpoint(RunStatus& status);
  bool is_here(const launcher::Membership& membership) const;
  void add_state(RunStatus& status, bool here) const;
  void add_logged_state(RunStatus& status) const;
  RankStatus rank_status(launcher::Membership::Member member, bool running, bool here) const;

  FileSystem& file_system_;
  Clock& clock_;
  const std::filesystem::path folder_;
  std::optional<Config> config_;  // of the generation below
  std::string transport_;
  int64_t config_generation_ = -1;
  int64_t events_bytes_ = -1, restarts_ = 0;
  bool asked_to_stop_ = false;          // the newest launch
  std::string refused_, state_before_;  // of a command that was refused; the state before it
  int64_t status_before_ = -1;
  std::string last_failure_, last_error_;
  bool failed_since_recovery_ = false;
  std::string waiting_for_;
  double waits_since_s_ = 0;                            // Unix time
  int64_t committed_step_ = -2, checkpoint_step_ = -1;  // -2: nothing was read yet
  size_t audits_ = 0;                                   // that had found something by then
  std::optional<int64_t> checkpoint_created_s_;
};

}  // namespace lockstep::cli
