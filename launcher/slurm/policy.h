// What Slurm does with a job whose nodes go or whose time ends, and what we do then: the table of
// docs/SLURM.md as a pure function. Nothing here runs a program or looks at a clock.
#pragma once

#include <string>

namespace lockstep::launcher::slurm {

// What the user said at submission, as far as it decides something.
enum class Policy {
  kNone,             // not in a Slurm batch job: one machine, ssh, salloc
  kNoRequeueNoKill,  // --no-requeue --no-kill: what our scripts ask for
  kNoRequeue,        // --no-requeue: Slurm ends the job when it misses a node
  kRequeueNoKill,    // --requeue --no-kill
  kRequeue,          // --requeue: Slurm starts the job again when it misses a node
};
inline constexpr Policy kPolicies[] = {Policy::kNone, Policy::kNoRequeueNoKill, Policy::kNoRequeue,
                                       Policy::kRequeueNoKill, Policy::kRequeue};
const char* policy_name(Policy policy);  // "no-requeue, no-kill"
// Slurm takes a lost node out of the job (of several nodes) and lets the rest live.
bool keeps_survivors(Policy policy);
bool may_requeue(Policy policy);

enum class Happening {
  kNodeLost,      // and enough are left to go on
  kBelowMinimum,  // nothing can go on in this allocation
  kStopAsked,     // USR1, TERM: the time limit is near, or somebody with more right wants the nodes
  kCancelled,     // scancel: the user does not want it
  kFinished,
  kGivenUp,  // wrong input, a bug, no progress: the same would come again
};
inline constexpr Happening kHappenings[] = {Happening::kNodeLost,  Happening::kBelowMinimum,
                                            Happening::kStopAsked, Happening::kCancelled,
                                            Happening::kFinished,  Happening::kGivenUp};
const char* happening_name(Happening happening);  // "below the minimum"

struct Decision {
  enum class Then {
    kGoOn,     // recover inside the allocation
    kLeave,    // end; state is saved, or was before
    kRequeue,  // ask Slurm to start the job again
  };
  Then then = Then::kLeave;
  bool slurm_ends_it = false;  // Slurm ends the job when it misses the node, SlurmdTimeout later
  bool end_job = false;        // where the batch script is gone too, nobody else would: scancel
  bool operator==(const Decision&) const = default;
};
Decision decide(Policy policy, Happening happening);

// "recover in place", "save, requeue, exit 0", "exit 75, end the job": a cell of the table.
std::string decision_text(Policy policy, Happening happening);

}  // namespace lockstep::launcher::slurm
