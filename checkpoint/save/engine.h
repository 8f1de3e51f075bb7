// The asynchronous checkpoint engine of one rank.
//
//   IDLE --begin_save--> STAGING --> WRITING --> VOTING --> COMMITTED | FAILED --> IDLE
//             ^ returns at once        |           rank 0 publishes manifest, LATEST, index.h5,
//             |                        |           and applies the retention
//             +-- wait_read(): before the state may change again
//
// Threads: one stager/writer thread and `threads` compressors, started by create(). The methods are
// called by the training thread alone. Borrows the state, the file system, the ballot and the
// progress page; they outlive the engine.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/ballot/ballot.h"
#include "checkpoint/save/save_request.h"
#include "checkpoint/save/state_source.h"
#include "worker_link/progress_page.h"

namespace lockstep::checkpoint {

class Engine {
 public:
  // Allocates the staging buffers for `state`. Rank 0 takes the folder over from other generations
  // and removes what they left unfinished.
  // Errors: kConfig (options; too little memory, said in GiB), kIo.
  static Result<std::unique_ptr<Engine>> create(EngineOptions options, FileSystem& file_system,
                                                Ballot& ballot, ProgressPage& progress,
                                                StateSource& state);
  // Gives up a save that is still being written; waits at most the deadlines of one in voting.
  virtual ~Engine() = default;

  // Whether this rank can share a file with its neighbours; the first save asks where nobody has
  // before. Waits for them. Collective. Errors: kConfig, naming rank and key; kTimeout, kAborted.
  virtual Result<void> meet_neighbours(std::chrono::milliseconds deadline) = 0;
  // Starts a save, the same on every rank, and returns. The state must not change until
  // wait_read() returned. The save fails when its bytes are those of the one before although
  // `updates` moved.
  // False: skipped, one is in flight. Errors: kBug when trainer_state is no JSON object.
  virtual Result<bool> begin_save(SaveRequest request) = 0;
  // Returns when the state was read; the time spent here is the visible stall. Never fails by
  // itself: a copy that failed is in the report.
  virtual void wait_read() = 0;
  // The staged copy of the save that began last, for one reader, whose read() waits until it is
  // there. The next save waits until the reader is destroyed, which is before the engine.
  // Requires: no reader is left. Errors of its read(): kBug when the copy failed.
  virtual std::unique_ptr<StateSource> lend_staged() = 0;
  // Reports of saves that ended since the last call. Failed ones are logged at once by the engine
  // as well. Where the outcome did not arrive in time, a save that rank 0 committed is reported as
  // failed: its files stay.
  virtual std::vector<SaveReport> take_reports() = 0;
  virtual SavePhase phase() const = 0;
  // Waits for the save in flight, for so long at most. True: nothing is in flight.
  virtual bool drain_for(std::chrono::milliseconds most) = 0;
  // The number of the save's call to storage that is under way. Nothing while there is none, as
  // when a save waits for votes.
  virtual std::optional<int64_t> call_under_way() const = 0;
};

}  // namespace lockstep::checkpoint
