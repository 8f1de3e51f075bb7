// Who has to agree before a generation may follow the last one that was committed, the base.
//
//   with at least half of the base's members, once the rendezvous allows it: [P6], [P7]
//   without asking the rendezvous, when nobody else can have half of any generation: [P8], [P9]
//
// The rules and their argument are in docs/PROTOCOL.md; what the rendezvous allows is decided by
// succession.h.
// Pure. Thread: one.
#pragma once

#include <cstddef>
#include <unordered_set>
#include <vector>

#include "launcher/control/handover.h"
#include "launcher/control/rule.h"
#include "launcher/control/succession.h"

namespace lockstep::launcher::control {

class Quorum {
 public:
  // `before`: what the coordinator `own` has inherited.
  Quorum(NodeId own, const Handover& before, Rule without);

  int64_t base() const { return base_; }  // -1: no generation was committed yet
  const std::vector<NodeId>& members() const { return members_; }  // of the base
  bool has_member(NodeId id) const;
  bool first() const { return base_ < 0; }
  // Whether `own` has committed the base: nobody else coordinates then.
  bool has_committed() const { return base_ > inherited_; }

  // [P6] Whether so many promises of the base's members are enough.
  bool reached(size_t promises) const { return half(promises) || without_ == Rule::kP6; }
  // [P8], [P9] Whether it may follow without asking. `exclusive`: so many of the base's members
  // have promised the next generation, and none to another coordinator since they ran the base.
  bool need_not_ask(size_t exclusive) const;
  // What the rendezvous is asked for, with so many promises. The base's own number says that `own`
  // waits for nodes, to lead what will follow the base.
  Succession proposal(int64_t generation, size_t promises) const;

  // To wait for nodes, a coordinator asks the rendezvous to name it. True: it has to ask now.
  bool must_claim(size_t promises);
  void grant_claim();
  // [P16] Whether it may stop the workers, when it was asked to, or end the wait for them.
  bool may_stop(size_t promises) const;
  // [P17] Whether its end is that of the job.
  bool ends_job(size_t promises) const;

  void note_ran(NodeId id, int64_t generation);  // the node runs the generation, or has
  // The rendezvous lets this generation follow the base. Requires: it is newer than the base.
  void allow(int64_t generation);
  struct Promises {  // of the base's members, for the next generation
    size_t all = 0;
    size_t exclusive = 0;  // of those that have promised none to another coordinator meanwhile
  };
  // Requires: what [P6] to [P10] say. `members`: at least one, and all different.
  void commit(int64_t generation, std::vector<NodeId> members, const Promises& promises);

 private:
  enum class Claim { kNone, kAsked, kGranted };

  bool half(size_t promises) const { return 2 * promises >= members_.size(); }
  bool base_has_run() const { return 2 * not_yet_run_.size() < before_base_; }  // [P8]

  const NodeId own_, lost_;  // lost_: who led the base that was inherited
  const int64_t inherited_;
  const Rule without_;
  int64_t base_;
  std::vector<NodeId> members_;
  std::unordered_set<NodeId> not_yet_run_;  // the base, of the nodes of the generation before it
  size_t before_base_ = 0;                  // so many nodes that one had
  int64_t allowed_ = -1;                    // by the rendezvous, to follow the base; -1: none
  Claim claim_ = Claim::kNone;
};

}  // namespace lockstep::launcher::control
