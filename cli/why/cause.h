// What kinds of things end or disturb a run, and how they are told apart. Pure.
#pragma once

#include <string>

#include "cli/shared/launch_record.h"

namespace lockstep::cli {

enum class Cause {
  kNone,           // nothing went wrong
  kStopRequested,  // somebody asked for it
  kTimeLimit,      // the allocation ended
  kAgentGone,      // the launcher itself was killed, or its machine went down
  kNoNodes,        // too few nodes came, or were left
  kSuspect,        // it runs, and a rank looks wrong
  kUnwatched,      // srun or torchrun started it, and no agent wrote down how it ended
  // What a worker ended by.
  kKilled,
  kKilledForMemory,
  kCrashed,
  kHung,
  kFrozen,
  kNodeLost,
  kCoordinatorLost,
  kNodeBroken,
  kNodeSlow,
  kPeerLost,
  kWrongBits,
  kNotFinite,
  kOtherModel,
  kRanksDiffer,
  kNoCheckpoint,
  kFinalCheckpoint,
  kCannotWrite,
  kDataDamaged,
  kDataAway,
  kConfig,
  kNoMemory,
  kDiskFull,
  kFileLimit,
  kStorageFails,
  kStorageHangs,
  kDevice,
  kNoProgram,
  kBug,
};

// In JSON: "worker_killed".
const char* name_of(Cause cause);
Cause cause_of(const Failure& failure);
// Of a launch that failed without a worker's failure, by its last words.
Cause cause_of_end(const LaunchRecord& launch);

}  // namespace lockstep::cli
