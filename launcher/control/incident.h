// What can go wrong with a job's workers, as plain values: how a worker ended, and what one
// failure of a generation was, what followed from it and what recovering from it cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker_link/progress_page.h"

namespace lockstep::launcher {

// The exit-code contract between worker, agent and batch script (docs/FAULTS.md).
inline constexpr int kExitDone = 0;
inline constexpr int kExitConfig = 64;      // the user's input is wrong: never restart
inline constexpr int kExitBug = 70;         // bounded restarts
inline constexpr int kExitNoMemory = 71;    // an allocation failed: see `lockstep plan`
inline constexpr int kExitDiskFull = 74;    // make room, then run it again: never restarted
inline constexpr int kExitResume = 75;      // state is saved (or was before): run it again
inline constexpr int kExitPeerLost = 76;    // another rank is gone: restart at once
inline constexpr int kExitWrongBits = 77;   // an audit named its device: never restart there
inline constexpr int kExitChanged = 78;     // ended by a planned change: the next one follows
inline constexpr int kExitNoProgress = 93;  // do not restart

// What its agent had done to a worker before it ended.
enum class AgentDid : uint8_t { kNothing, kToldToLetGo, kKilled };

// How one worker ended.
struct WorkerExit {
  int rank = 0;
  int exit_code = 0;
  int signal = 0;        // != 0: killed by this signal, exit_code means nothing
  double hung_s = 0;     // > 0: it stopped making progress this long ago and was killed for it
  bool stopped = false;  // of a hang: the process was stopped (SIGSTOP), not busy
  bool no_memory =
      false;  // of SIGKILL: meanwhile the kernel ended processes of its node for memory
  AgentDid agent_did = AgentDid::kNothing;
  std::string node_lost;  // not empty: its node is gone, and this is how that was seen
  Progress progress;      // its page's last words
  std::vector<std::string> log_lines;

  bool chose_its_code() const { return signal == 0 && hung_s == 0 && node_lost.empty(); }
  bool done() const { return chose_its_code() && exit_code == kExitDone; }
  bool wants_resume() const { return chose_its_code() && exit_code == kExitResume; }
  bool found_wrong() const { return chose_its_code() && exit_code == kExitWrongBits; }
  bool changed() const { return chose_its_code() && exit_code == kExitChanged; }  // [P26]
  bool failed() const { return !done() && !wants_resume() && !changed(); }
};

// Whether a worker is in the middle of a step.
inline bool computing(Phase phase) { return phase == Phase::kStep || phase == Phase::kUpdate; }

// What a running worker's page says.
struct Sample {
  Progress progress;
  bool stopped = false;  // the process is in state T
};

// "killed by SIGKILL", "exit code 70 (bug)", "no progress for 120 s".
std::string cause_text(const WorkerExit& exit);
// What such words say, apart from rank, progress and log lines: cause_text gives them again.
WorkerExit parse_cause(std::string_view words);
// Of lines that processes have logged (base/log.h), what the last error says. "": there is none.
std::string last_error(std::string_view log);
std::string signal_text(int signal);  // "SIGKILL"
// The status with which to end when `exit` is the reason and nothing may be restarted.
int failure_status(const WorkerExit& exit);

// How far a generation has come, and how fast.
struct Pace {
  int64_t first = -1, front = -1;      // steps that were seen to be computed; -1: none
  int64_t first_ns = 0, front_ns = 0;  // when each was seen first
  int64_t done = -1;                   // the newest step that is complete; -1: unknown

  void note(const Progress& progress, int64_t now_ns);
  double step_s() const;  // of the mean step; -1: unknown
};

// One failure of a generation. Times in ms; -1: did not get that far.
struct Incident {
  int64_t generation = 0, world_size = 0;
  WorkerExit primary;                    // failed first, and not because another one had
  std::vector<WorkerExit> consequences;  // the other ends of this generation, in the order seen
  int64_t next_world_size = 0;           // 0: not restarted
  double detect_ms = -1;                 // at most this long from the death to noticing it
  double stop_ms = -1;                   // noticed -> every worker of the generation reaped
  double agree_ms = 0;                   // -> the nodes agreed on the next generation
  double respawn_ms = -1;                // -> every worker of it started
  double restore_ms = -1;                // -> one of them computes: state is loaded
  double first_step_ms = -1;             // -> it completed a step
  int64_t first_step = -1;               // ... this one
  int64_t done_step = -1;                // the last one that was done before; -1: unknown
  double step_s = -1;                    // a step took so long before; -1: unknown

  bool recovered() const { return first_step_ms >= 0; }
  // Steps that were done before the failure and are computed again; -1: unknown.
  int64_t redone_steps() const;
  double redone_s() const;  // about so long; -1: unknown
  double total_ms() const {
    return detect_ms + stop_ms + agree_ms + respawn_ms + restore_ms + first_step_ms;
  }
};

// "detect 1 ms, stop 12 ms, agree 0 ms, respawn 3 ms, restore 140 ms, first step 700 ms: 856 ms"
std::string phases_text(const Incident& incident);
// "no step is computed again", "95 steps (about 9.0 s) are computed again"; "": nobody knows.
std::string redone_text(int64_t steps, double seconds);
// The closing table: each failure, what followed from it, what recovery cost. Empty without any.
std::string incident_table(const std::vector<Incident>& incidents);

}  // namespace lockstep::launcher

namespace lockstep::launcher::control {

// Which end of a generation's workers was the failure, and which ones followed from it. It goes by
// what each agent did to its own workers and when, not by whose report arrived first: a SIGKILL
// that no agent sent is never a consequence.
struct SeenExit {
  WorkerExit exit;
  bool after_kill;  // it was reported after the coordinator had ordered to kill all workers
};

// Whether it says no more than that another worker is gone.
bool peer_lost(const WorkerExit& exit);
// The failure that no other one explains. Requires: at least one exit.
size_t primary_index(const std::vector<SeenExit>& exits);
// How many workers were lost by themselves, and not because others were.
int64_t lost_workers(const std::vector<SeenExit>& exits);

}  // namespace lockstep::launcher::control
