// What is said of each cause, and what a person should do about it.
#include <csignal>

#include "base/number.h"
#include "base/text.h"
#include "cli/why/account.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

// The first sentence of the last error, without the rank's name, which stands before it in the log.
std::string error_text(const Failure& failure) {
  std::string words = failure.error;
  const size_t colon = words.find(": ");
  if (words.starts_with("rank ") && parse_number(words.substr(5, colon - 5)))
    words = words.substr(colon + 2);
  return words.substr(0, words.find(". "));
}

// Of several disks that are full the first.
std::string full_disk_text(const Failure& failure) {
  const std::string& error = failure.error;
  const size_t begin = error.find("disk full: ");
  if (begin == error.npos) return error_text(failure);
  const std::string words = error.substr(begin + std::string_view("disk full: ").size());
  return words.substr(0, words.find("; "));
}

std::string with_error(const std::string& words, const Failure& failure) {
  const std::string error = error_text(failure);
  return error.empty() ? words + "; it logged no error" : text(words, ": ", error);
}

const char* crash_text(int signal) {
  switch (signal) {
    case SIGSEGV: return "it used memory that is not its own";
    case SIGBUS: return "a mapped file or memory was gone, for example because /dev/shm is full";
    case SIGABRT: return "a check of the program failed";
    case SIGILL: return "the processor does not know an instruction of the program";
    case SIGFPE: return "an impossible whole-number division";
    default: return "a system call is forbidden here";
  }
}

// The node's name where it is known, else the words for it.
std::string node_text(const Failure& failure) {
  return failure.node.empty() ? "its node" : text("node ", failure.node);
}

// "its connection has ended" of "node node2 lost: its connection has ended".
std::string after_colon(const std::string& words) {
  const size_t colon = words.find(": ");
  return colon == words.npos ? words : words.substr(colon + 2);
}

std::string leave_out(const Failure& failure) {
  return failure.node.empty()
             ? "Leave its node out of the next job (`sbatch --exclude=NODE`)."
             : text("Leave ", failure.node,
                    " out of the next job (`sbatch --exclude=", failure.node, "`).");
}

std::string look_at_node(const Failure& failure) {
  return failure.node.empty() ? "Run `lockstep doctor` on its node."
                              : text("Run `lockstep doctor` on ", failure.node, ".");
}

std::string killed_text(const Failure& failure) {
  const std::string signal = launcher::signal_text(failure.exit.signal);
  return text(who_text(failure), " was killed by ", signal,
              "; Lockstep did not send this signal, so a person, Slurm or another program did");
}

std::string code_text(const Failure& failure) {
  const int code = failure.exit.exit_code;
  if (code == launcher::kExitBug)
    return text(who_text(failure), " ended with exit code 70 (a bug, or a disk that failed)");
  return text(who_text(failure), " ended with exit code ", code, ", which Lockstep does not use");
}

std::string not_finite_text(const Failure& failure) {
  return text("the loss or the gradient of step ", failure.step,
              " is not a finite number (NaN or infinite), and training.nan_policy is \"stop\"");
}

std::string node_lost_text(const Failure& failure) {
  const std::string& why =
      failure.node_reason.empty() ? failure.exit.node_lost : failure.node_reason;
  return text(node_text(failure), " was lost: ", after_colon(why),
              failure.rank < 0 ? "" : text("; rank ", failure.rank, " was lost with it"));
}

std::string wrong_bits_text(const Failure& failure) {
  const std::string error = failure.node_barred ? failure.node_reason : error_text(failure);
  if (error.find("an audit found") != error.npos) return error;
  return text("an audit found wrong bits, reported by ", who_text(failure));
}

// What is at fault, as far as words have a function of their own for it.
enum class Kind { kInput, kStorage, kOther };

// kInput: a restart would not mend it.
Kind kind_of(Cause cause) {
  switch (cause) {
    case Cause::kNotFinite:
    case Cause::kOtherModel:
    case Cause::kRanksDiffer:
    case Cause::kNoCheckpoint:
    case Cause::kCannotWrite:
    case Cause::kDataDamaged:
    case Cause::kDevice:
    case Cause::kConfig: return Kind::kInput;
    case Cause::kDiskFull:
    case Cause::kFileLimit:
    case Cause::kStorageHangs:
    case Cause::kStorageFails:
    case Cause::kFinalCheckpoint:
    case Cause::kDataAway: return Kind::kStorage;
    default: return Kind::kOther;
  }
}

std::string input_text(Cause cause, const Failure& f) {
  switch (cause) {
    case Cause::kNotFinite: return not_finite_text(f);
    case Cause::kOtherModel:
      return with_error("the config does not fit the checkpoint of this run", f);
    case Cause::kRanksDiffer: return with_error("the ranks were not started alike", f);
    case Cause::kNoCheckpoint:
      return with_error(
          "no checkpoint of this run can be used, and a run does not start over "
          "unasked",
          f);
    case Cause::kCannotWrite: return with_error("the checkpoint folder cannot be written", f);
    case Cause::kDataDamaged: return with_error("a data file is damaged", f);
    case Cause::kDevice: return with_error(text("the GPU of ", who_text(f), " cannot be used"), f);
    default: return with_error("the config, the data or the environment is wrong", f);
  }
}

std::string storage_text(Cause cause, const Failure& f) {
  switch (cause) {
    case Cause::kDiskFull:
      return text("the disk is full, so the checkpoint cannot be saved: ", full_disk_text(f));
    case Cause::kFileLimit:
      return with_error("a file reached the limit on file sizes (`ulimit -f`)", f);
    case Cause::kStorageHangs:
      return with_error("the checkpoint storage did not answer for too long", f);
    case Cause::kStorageFails:
      return with_error("the checkpoint storage refused all saves for too long", f);
    case Cause::kFinalCheckpoint:
      return with_error("the last checkpoint was damaged after it was written", f);
    default: return with_error("a data file could not be read for too long", f);
  }
}

Words about_node(Cause cause, const Failure& f) {
  switch (cause) {
    case Cause::kKilled:
      return {text("Find out who or what kills processes on ",
                   f.node.empty() ? "this machine" : f.node,
                   " (`dmesg`, the job's limits, other users).")};
    case Cause::kKilledForMemory:
      return {
          "Use more ranks, a smaller training.local_batch_size or "
          "activation_checkpoint.mode = \"full\"; `lockstep plan` shows what fits.",
          "Check whether another program on that machine takes the memory."};
    case Cause::kHung:
      return {look_at_node(f),
              "If a step or a load is slow by nature, raise launcher.hang_seconds."};
    case Cause::kFrozen:
      return {
          "Find out what stopped the process: `kill -STOP`, a debugger, or a job control tool."};
    case Cause::kNodeLost:
      return {text("Check whether ", node_text(f), " is up and its network works."), leave_out(f)};
    case Cause::kCoordinatorLost: return {"Check whether that node is up and its network works."};
    case Cause::kNodeBroken: return {leave_out(f), "Have its hardware tested."};
    case Cause::kNodeSlow: return {look_at_node(f), leave_out(f)};
    default: return {leave_out(f), "Have its device tested: it computes wrongly."};
  }
}

Words about_input(Cause cause, int64_t checkpoint_step) {
  switch (cause) {
    case Cause::kNotFinite:
      return {
          "Lower optimizer.lr or check the data of this step; or set training.nan_policy to "
          "\"skip\" or \"rollback\".",
          resume_text(checkpoint_step)};
    case Cause::kOtherModel:
      return {
          "Undo this change and run the command again; or start a new run with another "
          "--job.dump_folder."};
    case Cause::kRanksDiffer:
      return {
          "Start all ranks with the same config, data and program, on the same kind of device."};
    case Cause::kNoCheckpoint:
      return {
          "Run `lockstep checkpoint list` on this folder, and repair or copy back a checkpoint.",
          "To give up the progress, move the checkpoint folder away; the run then starts from "
          "step 0."};
    case Cause::kCannotWrite:
      return {"Correct the permissions or checkpoint.folder.", resume_text(checkpoint_step)};
    case Cause::kDataDamaged:
      return {"Copy the data folder again, or run `lockstep prepare` again with --force.",
              resume_text(checkpoint_step)};
    case Cause::kDevice:
      return {"Run `lockstep doctor` on that node.", resume_text(checkpoint_step)};
    default: return {"Correct what the message names.", resume_text(checkpoint_step)};
  }
}

Words about_storage(Cause cause, int64_t checkpoint_step) {
  const std::string resume = resume_text(checkpoint_step);
  switch (cause) {
    case Cause::kDiskFull:
      return {"Make room: `lockstep checkpoint prune` removes checkpoints that you do not need.",
              resume};
    case Cause::kFileLimit:
      return {"Raise the limit on file sizes (`ulimit -f unlimited`).", resume};
    case Cause::kFinalCheckpoint:
      return {
          "Look at the disk, then run the same command again: it goes back to the checkpoint "
          "before the damaged one."};
    case Cause::kDataAway:
      return {"Look at the file server or disk that the message names.", resume};
    default: return {"Look at the file server or disk of the checkpoint folder.", resume};
  }
}

// After the advice on the cause.
void add_resume(Words& words, bool over, int64_t checkpoint_step) {
  if (over) words.push_back(resume_text(checkpoint_step));
}

}  // namespace

std::string who_text(const Failure& failure) {
  if (failure.rank < 0) return "a rank";
  return text("rank ", failure.rank, failure.node.empty() ? "" : text(" on ", failure.node));
}

std::string resume_text(int64_t checkpoint_step) {
  if (checkpoint_step < 0)
    return "Run the same command again: it starts from step 0, because there is no checkpoint.";
  return text("Run the same command again: it resumes after step ", checkpoint_step, ".");
}

std::string what_text(Cause cause, const Failure& f) {
  if (kind_of(cause) == Kind::kInput) return input_text(cause, f);
  if (kind_of(cause) == Kind::kStorage) return storage_text(cause, f);
  switch (cause) {
    case Cause::kKilled: return killed_text(f);
    case Cause::kKilledForMemory:
      return text("the kernel killed ", who_text(f), " because the memory of that machine ran out");
    case Cause::kCrashed:
      return text(who_text(f), " crashed with ", launcher::signal_text(f.exit.signal), " (",
                  crash_text(f.exit.signal), ")");
    case Cause::kHung:
      return text(who_text(f), " hung: it made no progress for ", fixed(f.exit.hung_s, 1), " s");
    case Cause::kFrozen:
      return text("the process of ", who_text(f), " was stopped from outside (SIGSTOP) for ",
                  fixed(f.exit.hung_s, 1), " s");
    case Cause::kNodeLost: return node_lost_text(f);
    case Cause::kCoordinatorLost: return "the node that coordinated the job was lost";
    case Cause::kNodeBroken: return text("hardware failed: ", f.node_reason);
    case Cause::kNodeSlow: return text("a slow node was replaced: ", f.node_reason);
    case Cause::kPeerLost:
      return with_error(text(who_text(f),
                             " lost the connection to another rank, and nobody saw "
                             "which rank failed first"),
                        f);
    case Cause::kWrongBits: return wrong_bits_text(f);
    case Cause::kNoMemory: return with_error(text(who_text(f), " ran out of memory"), f);
    case Cause::kNoProgram:
      return text(who_text(f), " could not start, because a program or a library is missing");
    default: return with_error(code_text(f), f);
  }
}

Words to_do_about(Cause cause, const Failure& f, bool over, int64_t step) {
  if (kind_of(cause) == Kind::kInput) return about_input(cause, step);
  if (kind_of(cause) == Kind::kStorage) return about_storage(cause, step);
  Words words;
  switch (cause) {
    case Cause::kNoMemory:
      words = {
          "Use more ranks, a smaller training.local_batch_size or "
          "activation_checkpoint.mode = \"full\"; `lockstep plan CONFIG --device-memory SIZE` "
          "shows what fits."};
      break;
    case Cause::kPeerLost:
      words = {"Look for the rank that failed first in the logs of the other ranks and nodes."};
      break;
    case Cause::kNoProgram:
      words = {
          "Read the log of the rank: it names what is missing. `lockstep doctor` checks the "
          "programs."};
      break;
    case Cause::kCrashed:
    case Cause::kBug:
      words = {
          "Read the log of the rank. If it names a file or a disk, look there; otherwise "
          "report it as a bug, with the log."};
      break;
    default: words = about_node(cause, f); break;
  }
  add_resume(words, over, step);
  return words;
}

}  // namespace lockstep::cli
