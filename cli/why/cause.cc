#include "cli/why/cause.h"

#include <array>
#include <csignal>
#include <string_view>

namespace lockstep::cli {
namespace {

// Words of errors that say more than the exit status. The first that is found counts.
struct Signature {
  std::string_view words;
  Cause cause;
};
constexpr auto kSignatures = std::to_array<Signature>({
    {"not finite; the update was not made", Cause::kNotFinite},
    {"beyond a limit on file sizes", Cause::kFileLimit},
    {"disk full: ", Cause::kDiskFull},
    {"No space left", Cause::kDiskFull},
    {"the config describes another model", Cause::kOtherModel},
    {"the number of slots is part of the run", Cause::kOtherModel},
    {"whose state is different", Cause::kOtherModel},
    {"keeps AdamW's moments in", Cause::kOtherModel},
    {"was made under another identity", Cause::kOtherModel},
    {"must compute the same run", Cause::kRanksDiffer},
    {"must compute on the same kind of device", Cause::kRanksDiffer},
    {"move the folder away to start from step 0", Cause::kNoCheckpoint},
    {"the final checkpoint cannot be read back", Cause::kFinalCheckpoint},
    {"cannot write checkpoints to", Cause::kCannotWrite},
    {"storage has not answered", Cause::kStorageHangs},
    {"storage does not answer", Cause::kStorageHangs},
    {"saves have failed for longer than", Cause::kStorageFails},
    {"the final save of step", Cause::kStorageFails},
    {"damaged after prepare", Cause::kDataDamaged},
    {": the read failed for ", Cause::kDataAway},
    {" did not end within ", Cause::kDataAway},
    {"CUDA error", Cause::kDevice},
    {"CUDA driver", Cause::kDevice},
    {"out of memory", Cause::kNoMemory},
});

Cause by_signature(std::string_view error, Cause otherwise) {
  for (const Signature& each : kSignatures)
    if (error.find(each.words) != error.npos) return each.cause;
  return otherwise;
}

bool is_crash(int signal) {
  return signal == SIGSEGV || signal == SIGABRT || signal == SIGBUS || signal == SIGFPE ||
         signal == SIGILL || signal == SIGSYS;
}

Cause by_exit_code(int code, const std::string& error) {
  constexpr int kNotFound = 127;
  switch (code) {
    case launcher::kExitConfig: return by_signature(error, Cause::kConfig);
    case launcher::kExitNoMemory: return Cause::kNoMemory;
    case launcher::kExitDiskFull: {
      const Cause found = by_signature(error, Cause::kDiskFull);
      return found == Cause::kFileLimit ? found : Cause::kDiskFull;
    }
    case launcher::kExitPeerLost: return Cause::kPeerLost;
    case launcher::kExitWrongBits: return Cause::kWrongBits;
    case kNotFound: return Cause::kNoProgram;
    default: return by_signature(error, Cause::kBug);
  }
}

}  // namespace

const char* name_of(Cause cause) {
  switch (cause) {
    case Cause::kNone: return "none";
    case Cause::kStopRequested: return "stop_requested";
    case Cause::kTimeLimit: return "time_limit";
    case Cause::kAgentGone: return "agent_gone";
    case Cause::kNoNodes: return "too_few_nodes";
    case Cause::kSuspect: return "suspect";
    case Cause::kUnwatched: return "unwatched";
    case Cause::kKilled: return "worker_killed";
    case Cause::kKilledForMemory: return "worker_killed_for_memory";
    case Cause::kCrashed: return "worker_crashed";
    case Cause::kHung: return "worker_hung";
    case Cause::kFrozen: return "worker_stopped";
    case Cause::kNodeLost: return "node_lost";
    case Cause::kCoordinatorLost: return "coordinator_lost";
    case Cause::kNodeBroken: return "node_broken";
    case Cause::kNodeSlow: return "node_slow";
    case Cause::kPeerLost: return "peer_lost";
    case Cause::kWrongBits: return "wrong_bits";
    case Cause::kNotFinite: return "not_finite";
    case Cause::kOtherModel: return "other_model";
    case Cause::kRanksDiffer: return "ranks_differ";
    case Cause::kNoCheckpoint: return "no_usable_checkpoint";
    case Cause::kFinalCheckpoint: return "final_checkpoint_damaged";
    case Cause::kCannotWrite: return "checkpoint_folder";
    case Cause::kDataDamaged: return "data_damaged";
    case Cause::kDataAway: return "data_unreadable";
    case Cause::kConfig: return "config";
    case Cause::kNoMemory: return "out_of_memory";
    case Cause::kDiskFull: return "disk_full";
    case Cause::kFileLimit: return "file_size_limit";
    case Cause::kStorageFails: return "storage_fails";
    case Cause::kStorageHangs: return "storage_hangs";
    case Cause::kDevice: return "device";
    case Cause::kNoProgram: return "program_missing";
    case Cause::kBug: return "bug";
  }
  return "none";
}

Cause cause_of(const Failure& failure) {
  const launcher::WorkerExit& exit = failure.exit;
  if (failure.node_replaced) return Cause::kNodeSlow;
  if (failure.node_barred)
    return failure.node_reason.find("audit found") != std::string::npos ? Cause::kWrongBits
                                                                        : Cause::kNodeBroken;
  if (exit.node_lost.find("that coordinated the job") != std::string::npos)
    return Cause::kCoordinatorLost;
  if (!exit.node_lost.empty()) return Cause::kNodeLost;
  if (exit.hung_s > 0) return exit.stopped ? Cause::kFrozen : Cause::kHung;
  if (exit.no_memory) return Cause::kKilledForMemory;
  if (exit.signal != 0) return is_crash(exit.signal) ? Cause::kCrashed : Cause::kKilled;
  return by_exit_code(exit.exit_code, failure.error);
}

Cause cause_of_end(const LaunchRecord& launch) {
  const std::string& words = launch.end_reason;
  if (words.find("cannot start workers") != words.npos) return Cause::kNoProgram;
  if (words.find("nodes") != words.npos || words.find("a node was lost") != words.npos)
    return Cause::kNoNodes;
  return by_exit_code(static_cast<int>(launch.exit_status), words);
}

}  // namespace lockstep::cli
