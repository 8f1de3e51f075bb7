#include "launcher/slurm/policy.h"

namespace lockstep::launcher::slurm {

const char* policy_name(Policy policy) {
  switch (policy) {
    case Policy::kNone: return "no batch job";
    case Policy::kNoRequeueNoKill: return "no-requeue, no-kill";
    case Policy::kNoRequeue: return "no-requeue, kill";
    case Policy::kRequeueNoKill: return "requeue, no-kill";
    case Policy::kRequeue: return "requeue, kill";
  }
  return "unknown";
}

const char* happening_name(Happening happening) {
  switch (happening) {
    case Happening::kNodeLost: return "node lost";
    case Happening::kBelowMinimum: return "below the minimum";
    case Happening::kStopAsked: return "time limit, pre-emption";
    case Happening::kCancelled: return "scancel";
    case Happening::kFinished: return "finished";
    case Happening::kGivenUp: return "given up";
  }
  return "unknown";
}

bool keeps_survivors(Policy policy) {
  return policy == Policy::kNoRequeueNoKill || policy == Policy::kRequeueNoKill;
}

bool may_requeue(Policy policy) {
  return policy == Policy::kRequeueNoKill || policy == Policy::kRequeue;
}

// Requeue=0 is the user's word: no cell of a no-requeue policy asks for a requeue. Nor does a run
// that was cancelled or that would end the same way again.
Decision decide(Policy policy, Happening happening) {
  using Then = Decision::Then;
  Decision decision;
  decision.end_job = keeps_survivors(policy);
  switch (happening) {
    case Happening::kNodeLost:
      decision.then = Then::kGoOn;
      decision.end_job = false;
      decision.slurm_ends_it = policy == Policy::kNoRequeue || policy == Policy::kRequeue;
      break;
    case Happening::kBelowMinimum:
    case Happening::kStopAsked:
      decision.then = may_requeue(policy) ? Then::kRequeue : Then::kLeave;
      break;
    case Happening::kCancelled:
      decision.end_job = false;  // it ends already
      break;
    case Happening::kFinished:
    case Happening::kGivenUp: break;
  }
  return decision;
}

std::string decision_text(Policy policy, Happening happening) {
  const Decision decision = decide(policy, happening);
  if (decision.then == Decision::Then::kGoOn)
    return decision.slurm_ends_it ? "recover in place, until Slurm ends the job"
                                  : "recover in place";
  std::string out;
  switch (happening) {
    case Happening::kNodeLost: break;
    case Happening::kBelowMinimum: break;
    case Happening::kStopAsked:
    case Happening::kCancelled: out = "save, "; break;
    case Happening::kFinished: out = "exit 0"; break;
    case Happening::kGivenUp: out = "exit 64, 70, 71, 74, 77 or 93"; break;
  }
  if (decision.then == Decision::Then::kRequeue) return out + "requeue, exit 0";
  if (happening != Happening::kFinished && happening != Happening::kGivenUp) out += "exit 75";
  return decision.end_job ? out + ", end the job" : out;
}

}  // namespace lockstep::launcher::slurm
