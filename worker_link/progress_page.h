// A page of memory that a worker writes and its agent reads: where the worker is, without a
// message; and whose turn it is, so that a process can serve one generation after another.
// The worker maps the file that the agent made (LOCKSTEP_PROGRESS_PAGE) and stores into it with no
// system call; the agent samples it for hangs, for status, and to say what a dead worker was doing.
//
//   kRun --the agent: this generation is over--> kHalt --the worker has let go--> kParked
//    ^                                                                               |
//    +----------------- the agent: the next one, in the file beside the page --------+
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep {
inline namespace base {

enum class Phase : int32_t { kStart, kLoad, kWarmup, kStep, kUpdate, kEval, kSave, kDone };
inline constexpr size_t kPhases = 8;
const char* phase_name(Phase phase);

// What a checkpoint engine of the same worker is doing meanwhile.
enum class SavePhase : int32_t { kIdle, kStaging, kWriting, kVoting, kCommitted, kFailed };
inline constexpr size_t kSavePhases = 6;
const char* save_phase_name(SavePhase phase);

enum class Turn : uint32_t { kRun, kHalt, kParked };

// A planned change ends a generation at the end of a step (docs/PROTOCOL.md, [P24]). The agent asks
// for it, and the worker says that it has ended for it.
enum class Change : uint32_t { kNone, kAsked, kDone };

struct Progress {
  int64_t step = 0;
  Phase phase = Phase::kStart;
  SavePhase save_phase = SavePhase::kIdle;
  int64_t committed_step = -1;  // newest step this worker knows to be committed
  int64_t snapshot_step = -1;   // newest one that all ranks hold in memory
  int64_t slot_us = 0;          // for one slot of the last step, without waiting for other ranks
  int64_t first_step = 0;       // that it computed in this generation; 0: it has computed none
  int64_t unix_ns = 0;          // of the last change
};

class ProgressPage {
 public:
  // Maps `path`, making it when missing. Errors: kIo.
  static Result<std::unique_ptr<ProgressPage>> open(const std::filesystem::path& path);
  // Maps the page at `path` to read() it: what is there is never made, grown or changed. Errors:
  // kIo; kCorrupt: the file is no page.
  static Result<std::unique_ptr<const ProgressPage>> look_at(const std::filesystem::path& path);
  // A page of this process alone (no agent).
  static std::unique_ptr<ProgressPage> in_memory();
  ~ProgressPage();

  // Requires: a phase that has a name. Steps are what a file or another rank said: any number.
  void set_phase(int64_t step, Phase phase);
  void set_save_phase(SavePhase phase);
  void set_committed_step(int64_t step);
  void set_snapshot_step(int64_t step);
  void set_slot_us(int64_t microseconds);
  void set_first_step(int64_t step);  // before its phase says so
  // Says "alive" without a change of phase: once a slot.
  void touch();
  Progress read() const;

  // debug.stop_at, for tests. Each point is "GENERATION:RANK:MOMENT:STEP"; the one for this worker
  // replaces what was set before. The process stops itself (SIGSTOP), once, when its page first
  // says the moment, at that step or a later one. A moment is the name of a phase or of a save
  // phase, or "snapshot", whose step is that of the snapshot. Errors: kConfig.
  // Thread: one, before the generation starts.
  Result<void> stop_at(const std::vector<std::string>& points, int64_t generation, int64_t rank);

  Turn turn() const;
  void wait_while(Turn turn, int64_t timeout_ns) const;  // may return early
  // The agent's. After next_turn() the page says what a new one says.
  void ask_to_halt();
  void next_turn();
  // The worker's: nothing of its generation is left. Returns with the next turn.
  void park();
  // A planned change: the agent asks, the worker answers. The next turn begins with kNone.
  void ask_for_change();
  void say_changed();
  Change change() const;
  // The worker's, for good: its process computes on a device, and serves one generation alone.
  void say_serves_one();
  bool serves_one() const;

 private:
  struct Layout {
    std::atomic<int64_t> step, unix_ns, committed_step_plus_1;  // all zero in a new page
    std::atomic<int32_t> phase, save_phase;
    std::atomic<int64_t> snapshot_step_plus_1;
    std::atomic<uint32_t> turn, serves_one, change;
    std::atomic<int64_t> slot_us, first_step;
  };
  ProgressPage(Layout* layout, bool mapped) : layout_(layout), mapped_(mapped) {}
  static Result<std::unique_ptr<ProgressPage>> map(const std::filesystem::path& path, int fd,
                                                   int protection);
  void reach(const char* moment, int64_t step);

  Layout* layout_;
  bool mapped_;
  std::string stop_moment_;  // empty: no stop point
  int64_t stop_step_ = 0;
  std::atomic<bool> stopped_ = false;
};

}  // namespace base
}  // namespace lockstep
