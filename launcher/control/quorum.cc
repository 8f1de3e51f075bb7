#include "launcher/control/quorum.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::launcher::control {

Quorum::Quorum(NodeId own, const Handover& before, Rule without)
    : own_(own),
      lost_(before.lost),
      inherited_(before.generation),
      without_(without),
      base_(before.generation),
      members_(before.members) {
  LOCKSTEP_CHECK(own_ != 0, "a coordinator without an id");
  LOCKSTEP_CHECK(first() == members_.empty(), "generation ", base_, " of ", members_.size());
}

bool Quorum::has_member(NodeId id) const {
  return std::find(members_.begin(), members_.end(), id) != members_.end();
}

bool Quorum::need_not_ask(size_t exclusive) const {
  LOCKSTEP_CHECK(exclusive <= members_.size(), exclusive, " of ", members_.size());
  if (without_ == Rule::kP7) return true;
  const bool base_ran = base_has_run() || without_ == Rule::kP8;
  return has_committed() && base_ran && 2 * exclusive > members_.size();
}

Succession Quorum::proposal(int64_t generation, size_t promises) const {
  LOCKSTEP_CHECK(promises <= members_.size(), promises, " of ", members_.size());
  LOCKSTEP_CHECK(generation >= base_, "generation ", generation, " after ", base_);
  return {.leader = own_,
          .generation = generation,
          .lost = has_committed() ? own_ : lost_,
          .base = base_,
          .tie = 2 * promises == members_.size()};
}

// A coordinator that has committed the base is named already. It asks again when the job may be in
// two halves.
bool Quorum::must_claim(size_t promises) {
  LOCKSTEP_CHECK(!first(), "a job that begins waits for nobody's consent");
  LOCKSTEP_CHECK_RULE(P6, half(promises), promises, " of ", members_.size());
  const bool tie = 2 * promises == members_.size();
  if (claim_ != Claim::kNone || (has_committed() && !tie)) return false;
  claim_ = Claim::kAsked;
  return true;
}

void Quorum::grant_claim() {
  if (claim_ == Claim::kAsked) claim_ = Claim::kGranted;
}

bool Quorum::may_stop(size_t promises) const {
  const bool may = first() || has_committed() || without_ == Rule::kP16 ||
                   (claim_ == Claim::kGranted && reached(promises));
  LOCKSTEP_CHECK_RULE(P16, !may || first() || has_committed() || claim_ == Claim::kGranted, "base ",
                      base_, ", ", promises, " of ", members_.size());
  return may;
}

bool Quorum::ends_job(size_t promises) const {
  const bool ends = ((has_committed() || claim_ == Claim::kGranted) && reached(promises)) ||
                    without_ == Rule::kP17;
  LOCKSTEP_CHECK_RULE(P17, !ends || has_committed() || claim_ == Claim::kGranted, "base ", base_);
  LOCKSTEP_CHECK_RULE(P17, !ends || half(promises), promises, " of ", members_.size());
  return ends;
}

void Quorum::note_ran(NodeId id, int64_t generation) {
  if (generation == base_) not_yet_run_.erase(id);
}

void Quorum::allow(int64_t generation) {
  LOCKSTEP_CHECK_RULE(P10, generation > base_, "generation ", generation, " after ", base_);
  allowed_ = generation;
}

void Quorum::commit(int64_t generation, std::vector<NodeId> members, const Promises& promises) {
  const auto which = [&] {
    return text("generation ", generation, " after ", base_, ": ", promises.all, " promises of ",
                members_.size(), ", ", promises.exclusive, " to no other one; ",
                not_yet_run_.size(), " of ", before_base_, " have not run the base");
  };
  LOCKSTEP_CHECK_RULE(P10, generation > base_, which());
  LOCKSTEP_CHECK(promises.exclusive <= promises.all && promises.all <= members_.size(), which());
  LOCKSTEP_CHECK_RULE(P6, half(promises.all), which());
  // [P7] is broken where nobody was asked, and [P8] or [P9] does not hold.
  if (allowed_ != generation && rule_not_asserted != Rule::kP7) {
    LOCKSTEP_CHECK_RULE(P7, has_committed(), which());
    LOCKSTEP_CHECK_RULE(P8, base_has_run(), which());
    LOCKSTEP_CHECK_RULE(P9, 2 * promises.exclusive > members_.size(), which());
  }
  const std::unordered_set<NodeId> different(members.begin(), members.end());
  LOCKSTEP_CHECK(!members.empty() && different.size() == members.size() && !different.contains(0),
                 members.size(), " members, ", different.size(), " different ones: ", which());
  before_base_ = first() ? 1 : members_.size();  // nobody else can have followed nothing
  base_ = generation;
  not_yet_run_ = {members_.begin(), members_.end()};
  members_ = std::move(members);
  allowed_ = -1;
  claim_ = Claim::kNone;
}

}  // namespace lockstep::launcher::control
