#include "launcher/control/leader_search.h"

#include <algorithm>
#include <utility>

namespace lockstep::launcher::control {

int LeaderSearch::standby_number() const {
  for (size_t i = 0; i < standbys_.size(); ++i)
    if (standbys_[i].id == own_) return static_cast<int>(i);
  return -1;
}

bool LeaderSearch::is_new(const Order& order) const {
  return order.leader != order_from_ || order.sequence > order_sequence_ || without_ == Rule::kP23;
}

bool LeaderSearch::hear(const Order& order, int64_t now_ns) {
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
  if (!alone_since_ns_) alone_since_ns_ = heard_ns_;
  lead(address);
}

void LeaderSearch::step_down(int64_t now_ns) {
  leader_ = {};
  answered_ = false;
  heard_ns_ = tried_ns_ = now_ns;
}

void LeaderSearch::pass(int64_t now_ns) {
  if (leads()) heard_ns_ = now_ns;
}

void LeaderSearch::forgive_sleep(int64_t gap_ns) {
  heard_ns_ += gap_ns;
  if (alone_since_ns_) *alone_since_ns_ += gap_ns;
}

}  // namespace lockstep::launcher::control
