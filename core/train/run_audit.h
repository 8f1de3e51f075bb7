// When a run audits itself, and what follows from what an audit finds (audit.action).
//
// A difference is found before the update of its step. To stop or to evict:
//   1. one rank that was not named marks what was saved since the last audit that found nothing
//   2. all wait for that; where it cannot be done, nobody may resume, and the run stops
//   3. the named ranks end, or all of them where the run stops; nobody can be named: it stops
//   4. the others wait for the end of those in a collective, and begin anew from a checkpoint that
//      is not suspect
// Thread: the training thread. Borrows the environment and the config.
#pragma once

#include <string>
#include <vector>

#include "core/sharding/slot_audit.h"
#include "core/train/resume.h"
#include "core/train/run_inputs.h"

namespace lockstep::core {

class RunAudit {
 public:
  // `generation`: of what this process saves.
  RunAudit(const TrainerEnvironment& env, const Config& config, int64_t generation)
      : env_(env), config_(config), generation_(generation) {}

  // Every audit.interval steps, and in a generation's first step: its devices may be others.
  bool due(int64_t step) const;
  // Where nothing was found, now or before (audit.action warn goes on), the run is audited up to
  // `step`. Collective. Errors: kWrongBits: this process must not go on; kPeerLost: others must
  // not.
  Result<void> take(int64_t step, const StepAudit& audit, TrainerState& state);

 private:
  // By rank. Before any rank leaves: it may serve the store that knows them.
  std::vector<std::string> host_names() const;
  std::string finding(int64_t step, const StepAudit& audit,
                      const std::vector<std::string>& hosts) const;
  // False: it was this rank's part, and could not be done.
  bool mark_suspects(int64_t step, const AuditVerdict& verdict, int64_t audited_step,
                     const std::vector<std::string>& hosts) const;

  const TrainerEnvironment& env_;
  const Config& config_;
  const int64_t generation_;
  bool audited_ = false;  // in this generation
};

}  // namespace lockstep::core
