// An audit of the state at rest, as the ranks carry it out (core/audit/state_verdict.h, whose rules
// are meant). Fingerprints are digests (core/kernels/digest_kernels.h) of what is not
// padding, taken where it lies.
//
//   load, or the end of an update: note -> the audited step computes: received -> run
//                                                        the next update: forget -> note ...
//
// Borrows units and groups. Thread: the training thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/audit/state_verdict.h"
#include "core/audit/step_audit.h"
#include "core/sharding/unit.h"

namespace lockstep::core {

// What a gather of a unit brought.
struct ReceivedUnit {
  size_t unit = 0;              // of those that are gathered
  std::vector<uint64_t> parts;  // fingerprints, by rank of those that share a copy of the state
};
// `rank`: this one. Requires: the unit is there.
std::vector<uint64_t> fingerprints_of_received(const Unit& unit, int rank);

class StateAudit {
 public:
  StateAudit(const std::vector<std::unique_ptr<Unit>>& units, const Groups& groups);

  // Takes the fingerprints of what has none.
  void note();
  // What is trained changes now; what is frozen keeps its fingerprints.
  void forget();
  // Compares what is held now with what was noted, with what other ranks hold, `received` with what
  // its owners hold, and the gradients that came in audited exchanges with what was shipped. Those
  // are over. Collective. Errors: those of Pending::wait.
  Result<StepAudit> run(const std::vector<ReceivedUnit>& received) const;

 private:
  std::vector<uint64_t> fingerprints(const Unit& unit) const;
  StateReport changed(const std::vector<uint64_t>& now) const;
  Result<StateReport> compare_copies(const std::vector<uint64_t>& now, bool mine_changed) const;
  Result<StateReport> compare_received(const std::vector<uint64_t>& now, bool mine_changed,
                                       const std::vector<ReceivedUnit>& received) const;
  Result<StateReport> compare_exchanged() const;

  const std::vector<std::unique_ptr<Unit>>& units_;
  const Groups groups_;
  std::vector<std::vector<uint64_t>> noted_;  // by unit: of its tensors; empty: none
};

}  // namespace lockstep::core
