#include "launcher/control/quorum.h"

#include <algorithm>
#include <utility>

namespace lockstep::launcher::control {

Quorum::Quorum(NodeId own, const Handover& before, Rule without)
    : own_(own),
      lost_(before.lost),
      inherited_(before.generation),
      without_(without),
      base_(before.generation),
      members_(before.members) {}

bool Quorum::has_member(NodeId id) const {
  return std::find(members_.begin(), members_.end(), id) != members_.end();
}

bool Quorum::need_not_ask(size_t exclusive) const {
  if (without_ == Rule::kP7) return true;
  const bool base_has_run = 2 * not_yet_run_.size() < before_base_ || without_ == Rule::kP8;
  return has_committed() && base_has_run && 2 * exclusive > members_.size();
}

Succession Quorum::proposal(int64_t generation, size_t promises) const {
  return {.leader = own_,
          .generation = generation,
          .lost = has_committed() ? own_ : lost_,
          .base = base_,
          .tie = 2 * promises == members_.size()};
}

// A coordinator that has committed the base is named already. It asks again when the job may be in
// two halves.
bool Quorum::must_claim(size_t promises) {
  const bool tie = 2 * promises == members_.size();
  if (claim_ != Claim::kNone || (has_committed() && !tie)) return false;
  claim_ = Claim::kAsked;
  return true;
}

void Quorum::grant_claim() {
  if (claim_ == Claim::kAsked) claim_ = Claim::kGranted;
}

bool Quorum::may_stop(size_t promises) const {
  return first() || has_committed() || without_ == Rule::kP16 ||
         (claim_ == Claim::kGranted && reached(promises));
}

bool Quorum::ends_job(size_t promises) const {
  if (without_ == Rule::kP17) return true;
  return (has_committed() || claim_ == Claim::kGranted) && reached(promises);
}

void Quorum::note_ran(NodeId id, int64_t generation) {
  if (generation == base_) not_yet_run_.erase(id);
}

void Quorum::commit(int64_t generation, std::vector<NodeId> members) {
  before_base_ = first() ? 1 : members_.size();  // nobody else can have followed nothing
  base_ = generation;
  not_yet_run_ = {members_.begin(), members_.end()};
  members_ = std::move(members);
  claim_ = Claim::kNone;
}

}  // namespace lockstep::launcher::control
