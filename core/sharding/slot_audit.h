// An audit of one step as the ranks carry it out (core/audit/verdict.h): slots of the step's first
// round are computed again by other ranks, what came of them is compared, and a difference is
// arbitrated. Or all ranks compute one slot, whose answers another machine can be compared with.
// Thread: the training thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/audit/step_audit.h"
#include "core/comm/communicator.h"
#include "layout/slot_map.h"

namespace lockstep::core {

// What came of a slot: the bits of its loss, then a digest of each unit's gradient. Empty: this
// rank computed none.
using SlotDigests = std::vector<uint64_t>;

class SlotAudit {
 public:
  using Again = std::function<Result<SlotDigests>(const std::optional<int64_t>&)>;

  // `units`: whose gradients have digests, in their order. Borrows the communicator of all ranks.
  SlotAudit(Communicator& comm, const layout::SlotMap& map, int ranks_of_node,
            std::vector<std::string> units);

  // `computed`: of this rank's slot of the step's first round. `again` computes a slot; without one
  // it takes part in what is collective, and gives nothing. Collective. Errors: those of `again`
  // and of Pending::wait.
  Result<StepAudit> run(const SlotDigests& computed, const Again& again) const;
  // Every rank computes `slot`, one alone twice. What most ranks gave is right; of two that
  // contradict each other nobody is named. Collective. Errors: as above.
  Result<StepAudit> run_one(int64_t slot, const Again& again) const;

 private:
  int owner_of(int rank, int shift) const { return (rank + world_size() - shift) % world_size(); }
  int world_size() const { return comm_.world_size(); }
  Result<std::string> difference(const AuditVerdict& verdict, const SlotDigests& computed,
                                 const SlotDigests& again) const;
  std::string compare(const uint64_t* a, const uint64_t* b) const;
  AuditedSlot answer_of(int64_t slot, const SlotDigests& digests) const;
  std::string difference_of_one(int64_t slot, const std::vector<SlotDigests>& given,
                                size_t right) const;

  Communicator& comm_;
  const layout::SlotMap map_;
  const std::vector<int> shifts_;
  const std::vector<std::string> units_;
};

}  // namespace lockstep::core
