#include "launcher/control/roster.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::launcher::control {

void Node::leave_generation() {
  index = -1;
  ready = spawned = false;
  exits_seen = 0;
  pids.clear();
}

Node* Roster::find(NodeId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

Node& Roster::admit(const Report& report) {
  LOCKSTEP_CHECK(report.id != 0, "node ", report.name, " has no id");
  LOCKSTEP_CHECK(find(report.id) == nullptr, "node ", report.id, " is known");
  nodes_.push_back(std::make_unique<Node>());
  Node& node = *nodes_.back();
  node.peer.id = report.id;
  node.name = report.name;
  node.barred = barred_.contains(report.name);
  by_id_[report.id] = &node;
  return node;
}

void Roster::bar(Node& node) {
  LOCKSTEP_CHECK(find(node.peer.id) == &node, "node ", node.peer.id, " is unknown");
  node.barred = true;
  barred_.insert(node.name);
}

void Roster::hear(Node& node, const Report& report, int64_t now_ns) {
  LOCKSTEP_CHECK(report.id == node.peer.id && find(node.peer.id) == &node, "node ", node.peer.id,
                 ", report of ", report.id);
  LOCKSTEP_CHECK_RULE(P23, report.sequence > node.sequence, "node ", node.peer.id, ": report ",
                      report.sequence, " after ", node.sequence);
  LOCKSTEP_CHECK(now_ns >= node.heard_ns, "heard at ", node.heard_ns, " and at ", now_ns);
  node.heard_ns = now_ns;
  node.gone_ns = -1;
  if (!report.name.empty()) node.name = report.name;
  if (!report.address.empty()) node.peer.address = report.address;
  node.sequence = report.sequence;
  node.follows = report.follows;
  node.promised = report.promised;
  node.promised_to = report.promised_to;
  node.promised_elsewhere = report.promised_elsewhere;
  node.committed = report.committed;
  node.members_of = report.members_of;
  max_promised_ = std::max(max_promised_, report.promised);  // [P10]
}

void Roster::forgive_sleep(int64_t gap_ns) {
  LOCKSTEP_CHECK(gap_ns >= 0, "slept for ", gap_ns);
  for (const auto& node : nodes_) node->heard_ns += gap_ns;
}

bool Roster::look_for_silence(int64_t now_ns) {
  bool found = false;
  for (const auto& node : nodes_) {
    if (node->peer.id == own_ || now_ns - node->heard_ns < timing_.suspect_ns) continue;
    found = !std::exchange(node->suspect, true) || found;
  }
  return found;
}

// [P22]
std::string Roster::reason_lost(const Node& node, int64_t now_ns) const {
  if (node.peer.id == own_ || without_ == Rule::kP22) return "";
  if (node.gone_ns >= 0 && now_ns - node.gone_ns >= timing_.reset_ns)
    return "its connection ended (its agent or machine is gone)";
  const int64_t silent_ns = now_ns - node.heard_ns;
  return silent_ns >= timing_.evict_ns ? text("it has been silent for ", silent_ns / kMs, " ms")
                                       : "";
}

bool Roster::remove(const Node& node) { return by_id_.erase(node.peer.id) > 0; }

void Roster::sweep() {
  if (nodes_.size() == by_id_.size()) return;
  std::erase_if(nodes_, [this](const auto& node) { return find(node->peer.id) != node.get(); });
  LOCKSTEP_CHECK(nodes_.size() == by_id_.size(), nodes_.size(), " nodes, ", by_id_.size(), " ids");
}

int64_t Roster::count_eligible() const {
  return std::count_if(nodes_.begin(), nodes_.end(),
                       [this](const auto& node) { return eligible(*node); });
}

bool Roster::has_spare() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [this](const auto& node) {
    return node->index < 0 && !node->slow && eligible(*node);
  });
}

size_t Roster::count_voters() const {
  return static_cast<size_t>(std::count_if(nodes_.begin(), nodes_.end(), [this](const auto& node) {
    return node->voter && reachable(*node);
  }));
}

size_t Roster::count_eligible_voters() const {
  return static_cast<size_t>(std::count_if(nodes_.begin(), nodes_.end(), [this](const auto& node) {
    return node->voter && eligible(*node);
  }));
}

std::vector<Node*> Roster::choose(size_t count, const std::vector<NodeId>& first) const {
  std::vector<Node*> chosen;
  for (const NodeId id : first)
    if (Node* node = find(id); node != nullptr && eligible(*node)) chosen.push_back(node);
  for (const auto& node : nodes_)
    if (!node->voter && eligible(*node)) chosen.push_back(node.get());
  std::stable_partition(chosen.begin(), chosen.end(), [](const Node* node) { return !node->slow; });
  LOCKSTEP_CHECK(chosen.size() >= count, chosen.size(), " of ", count, " nodes");
  chosen.resize(count);
  for (const Node* node : chosen) {
    LOCKSTEP_CHECK(find(node->peer.id) == node && !node->barred, "node ", node->name);
    LOCKSTEP_CHECK_RULE(P15, node->follows == own_ && node->gone_ns < 0, "node ", node->name,
                        " follows ", node->follows, ", gone ", node->gone_ns);
  }
  return chosen;
}

}  // namespace lockstep::launcher::control
