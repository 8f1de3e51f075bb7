#include "launcher/control/leader_search.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::launcher::control {

int LeaderSearch::standby_number() const {
  for (size_t i = 0; i < standbys_.size(); ++i)
    if (standbys_[i].id == own_) return static_cast<int>(i);
  return -1;
}

bool LeaderSearch::is_new(const Order& order) const {
  return order.leader != order_from_ || order.sequence > order_sequence_ || without_ == Rule::kP23;
}

void LeaderSearch::go_by(const Timing& timing) {
  LOCKSTEP_CHECK(timing.try_ns > 0 && timing.suspect_ns < timing.evict_ns, timing.try_ns, " ",
                 timing.suspect_ns, " ", timing.evict_ns);
  LOCKSTEP_CHECK(2 * timing.evict_ns <= timing.fence_ns, timing.evict_ns, " ", timing.fence_ns);
  timing_ = timing;
}

bool LeaderSearch::hear(const Order& order, int64_t now_ns) {
  LOCKSTEP_CHECK(order.leader != 0, "an order of nobody");
  LOCKSTEP_CHECK_RULE(P23, order.leader != order_from_ || order.sequence > order_sequence_,
                      "order ", order.sequence, " of ", order.leader, " after ", order_sequence_);
  LOCKSTEP_CHECK(now_ns >= heard_ns_, "heard at ", heard_ns_, " and at ", now_ns);
  order_from_ = order.leader;
  order_sequence_ = order.sequence;
  heard_ns_ = now_ns;
  if (order.leader != own_ || order.duty == Duty::kRun) alone_since_ns_.reset();
  // Another node than the one that was asked may lead. It knows nothing of this node, so this node
  // goes to it.
  leader_.id = order.leader;
  return !std::exchange(answered_, true);
}

void LeaderSearch::follow(Peer leader, int64_t now_ns) {
  LOCKSTEP_CHECK(!answered_, "node ", leader_.id, " leads, and ", leader.id, " is asked");
  LOCKSTEP_CHECK(leader.id != own_, "node ", own_, " asks itself");
  leader_ = std::move(leader);
  tried_ns_ = now_ns;
}

// The coordinator may have died, so the node waits for it less long than for a silent one.
bool LeaderSearch::lose_connection(int64_t now_ns) {
  if (!std::exchange(answered_, false)) {
    tried_ns_ = std::min(tried_ns_, now_ns - timing_.try_ns);
    return false;
  }
  heard_ns_ = std::min(heard_ns_, now_ns - (timing_.evict_ns - timing_.try_ns));
  tried_ns_ = now_ns;
  return true;
}

std::optional<Peer> LeaderSearch::next_candidate(int64_t now_ns) {
  if (now_ns - tried_ns_ < timing_.try_ns) return std::nullopt;
  const size_t index = candidate_++ % (standbys_.size() + 1);
  if (index == standbys_.size()) return Peer{};
  if (standbys_[index].id == own_) return std::nullopt;
  return standbys_[index];
}

void LeaderSearch::lead(const std::string& address) { leader_ = {own_, address}; }

void LeaderSearch::try_to_lead(const std::string& address) {
  LOCKSTEP_CHECK(!answered_ && !leads(), "node ", own_, ": ", leader_.id, " leads");
  if (!alone_since_ns_) alone_since_ns_ = heard_ns_;
  lead(address);
}

void LeaderSearch::step_down(int64_t now_ns) {
  LOCKSTEP_CHECK(leads(), "node ", own_, ": ", leader_.id, " leads");
  leader_ = {};
  answered_ = false;
  heard_ns_ = tried_ns_ = now_ns;
}

void LeaderSearch::pass(int64_t now_ns) {
  LOCKSTEP_CHECK(now_ns >= heard_ns_, "heard at ", heard_ns_, ", now ", now_ns);
  if (leads()) heard_ns_ = now_ns;
}

void LeaderSearch::forgive_sleep(int64_t gap_ns) {
  LOCKSTEP_CHECK(gap_ns >= 0, "slept for ", gap_ns);
  heard_ns_ += gap_ns;
  if (alone_since_ns_) *alone_since_ns_ += gap_ns;
}

}  // namespace lockstep::launcher::control
