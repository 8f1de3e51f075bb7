// The Coordinator's FORMING, PREPARE and COMMIT: which nodes, and when.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "launcher/control/coordinator.h"
#include "launcher/host/environment.h"

namespace lockstep::launcher::control {
namespace {

constexpr size_t kStandbys = 2;
constexpr int64_t kRemindNs = 30'000 * kMs;

}  // namespace

// Waiting has a limit, and then a reason to end.
Nodes Coordinator::wait_for(int64_t limit_ns, std::string otherwise) {
  if (waiting_ns_ < 0) waiting_ns_ = now_ns_;
  Nodes nodes;
  nodes.count = now_ns_ - waiting_ns_ < limit_ns ? 0 : -1;
  nodes.reason = std::move(otherwise);
  return nodes;
}

Nodes Coordinator::plan() {
  const auto have = std::count_if(nodes_.begin(), nodes_.end(),
                                  [this](const auto& node) { return eligible(*node); });
  const auto& o = options_;
  const auto before = static_cast<int64_t>(roll_.size());
  if (lacks_quorum()) return wait_for(INT64_MAX, "");  // to go on or to end is not for us to say
  if (base_ < 0 && have < o.max_nodes + o.spares) {
    const Nodes first = plan_first(have);
    if (first.count <= 0) return first;
  }
  const bool shrinks = o.on_node_loss == OnNodeLoss::kShrink || base_ < 0;
  const int64_t least = shrinks ? o.min_nodes : before;
  if (lost_some_ && base_ >= 0 && o.on_node_loss == OnNodeLoss::kFail)
    return wait_for(0, "a node was lost, and --on-node-loss is fail");
  if (have < least) {
    const std::string reason = text(have, " nodes are left and ", least, " are needed");
    // A spare may be on its way: its connection broke, or it has not found this standby yet.
    if (o.on_node_loss == OnNodeLoss::kSpare)
      return wait_for(o.timing.fence_ns, reason + "; no spare is there");
    return wait_for(shrinks ? o.last_call_ns : o.timing.join_ns, reason);
  }
  const int64_t wanted = std::max(have - o.spares, std::min<int64_t>(before, have));
  Nodes nodes;
  nodes.count = std::clamp(wanted, o.min_nodes, std::min<int64_t>(have, o.max_nodes));
  nodes.next_generation = max_promised_ + 1;
  planned_ = nodes.count;
  return nodes;
}

Nodes Coordinator::plan_first(int64_t have) {
  const auto& o = options_;
  if (have < o.min_nodes) {
    enough_ns_ = -1;
    return wait_for(o.timing.join_ns, text("only ", have, " of ", o.min_nodes, " nodes came"));
  }
  if (enough_ns_ < 0) {
    enough_ns_ = now_ns_;
    record("waiting_for_nodes", text(have, " of ", o.max_nodes + o.spares,
                                     " are here, the others "
                                     "have ",
                                     o.last_call_ns / (1000 * kMs), " s more"));
  }
  if (now_ns_ - enough_ns_ >= o.last_call_ns) return {};
  return {0, 0, ""};
}

// Those of the last generation keep their order and so, where they can, their ranks.
std::vector<Coordinator::Node*> Coordinator::choose(size_t count) {
  std::vector<Node*> chosen;
  for (const NodeId id : roll_)
    if (const auto found = by_id_.find(id); found != by_id_.end() && eligible(*found->second))
      chosen.push_back(found->second);
  for (const auto& node : nodes_)
    if (!node->voter && eligible(*node)) chosen.push_back(node.get());
  LOCKSTEP_CHECK(chosen.size() >= count, chosen.size(), " of ", count, " nodes");
  chosen.resize(count);
  return chosen;
}

size_t Coordinator::voters() const {
  return static_cast<size_t>(std::count_if(nodes_.begin(), nodes_.end(), [this](const auto& node) {
    return node->voter && eligible(*node);
  }));
}

bool Coordinator::lacks_quorum() const {
  return base_ >= 0 && !rules() && 2 * voters() < roll_.size();
}

void Coordinator::gather() {
  const bool takeover = !begun_ && base_ >= 0;
  const int64_t waited_ns = now_ns_ - waiting_ns_;
  if (takeover) generation_ = std::max(generation_, max_promised_ + 1);
  if (takeover) {
    // All but who is lost, or those that came in time.
    const auto have = std::count_if(nodes_.begin(), nodes_.end(),
                                    [this](const auto& node) { return eligible(*node); });
    const auto expected = static_cast<int64_t>(roll_.size()) - 1 + before_.parked;
    if (have < expected && waited_ns < options_.timing.ack_ns) return;
    lost_some_ = true;
  }
  const Nodes nodes = plan();
  if (nodes.count == 0) return wait_on();
  feed(nodes);
  if (begun_ || stage_ != Stage::kGathering) return;
  begun_ = true;
  if (!takeover) {
    feed(Begin{});
    return;
  }
  WorkerExit lost;
  const auto& list = options_.supervisor.nproc_per_node;
  const int64_t per_node = list.empty() ? options_.supervisor.default_nproc : list.back();
  const auto index = std::find(roll_.begin(), roll_.end(), before_.lost) - roll_.begin();
  lost.rank = static_cast<int>(index * per_node);
  lost.node_lost = "the node of the coordinator is lost";
  lost.progress = before_.progress;
  lost.progress.committed_step = before_.safe_step;
  feed(TookOver{lost, before_.silent_ms, static_cast<int64_t>(roll_.size()) * per_node});
}

// Who waits for nodes of a job that has begun must be the one whom they find at the rendezvous, and
// whom the other half finds. With fewer than half of them others may go on: it looks for those.
void Coordinator::wait_on() {
  if (now_ns_ - reminded_ns_ >= kRemindNs) {
    reminded_ns_ = now_ns_;
    const auto have = std::count_if(nodes_.begin(), nodes_.end(),
                                    [this](const auto& node) { return eligible(*node); });
    record("waiting_for_nodes", text(have, " are here, at least ", options_.min_nodes, " must be"));
  }
  if (base_ < 0) return;
  const size_t twice = 2 * voters();
  if (twice < roll_.size()) {
    if (now_ns_ - std::max(waiting_ns_, enough_ns_) < options_.timing.fence_ns) return;
    return step_down(text("only ", voters(), " of ", roll_.size(), " nodes can be reached"));
  }
  enough_ns_ = now_ns_;
  const bool tie = twice == roll_.size();
  if (claimed_ || (rules() && !tie)) return;
  claimed_ = true;
  actions_->emplace_back(Propose{succession(base_, tie)});
}

void Coordinator::prepare(const SpawnAll& action) {
  for (const auto& node : nodes_) {
    node->index = -1;
    node->ready = node->spawned = false;
    node->exits_seen = 0;
    node->pids.clear();
  }
  generation_ = action.generation;
  members_ = choose(static_cast<size_t>(planned_));
  per_node_ = action.world_size / static_cast<int64_t>(members_.size());
  for (size_t i = 0; i < members_.size(); ++i) members_[i]->index = static_cast<int64_t>(i);
  nonce_ =
      nonce_of(options_.id, static_cast<uint64_t>(generation_), static_cast<uint64_t>(sequence_));
  samples_.assign(static_cast<size_t>(action.world_size), Sample{});
  ended_.assign(static_cast<size_t>(action.world_size), false);
  pending_.clear();
  ready_ = spawned_ = reaped_ = 0;
  proposed_ = stop_ = kill_ = regroup_ = false;
  prepared_ns_ = now_ns_;
  stage_ = Stage::kPreparing;
  broadcast_ = true;
}

void Coordinator::try_commit() {
  const auto promises = static_cast<size_t>(std::count_if(
      members_.begin(), members_.end(), [](const Node* node) { return node->voter; }));
  const bool tie = 2 * promises == roll_.size();
  if (2 * promises < roll_.size()) {
    step_down(text("only ", promises, " of ", roll_.size(), " nodes agree"));
  } else if (need_not_ask()) {
    commit();
  } else if (!std::exchange(proposed_, true)) {
    proposed_ns_ = now_ns_;
    actions_->emplace_back(Propose{succession(generation_, tie)});
  }
}

bool Coordinator::need_not_ask() const {
  const auto faithful =
      static_cast<size_t>(std::count_if(members_.begin(), members_.end(), [](const Node* node) {
        return node->voter && !node->strayed;
      }));
  return rules() && 2 * not_yet_run_.size() < before_it_ && 2 * faithful > roll_.size();
}

// A standby that takes over has nothing to end before it is the one that goes on, or waits to.
bool Coordinator::may_stop() const { return base_ < 0 || rules() || (granted_ && !lacks_quorum()); }

Succession Coordinator::succession(int64_t generation, bool tie) const {
  return {.leader = options_.id,
          .generation = generation,
          .lost = rules() ? options_.id : before_.lost,
          .base = base_,
          .tie = tie};
}

void Coordinator::commit() {
  const bool first = base_ < 0;
  base_ = generation_;
  before_it_ = first ? 1 : roll_.size();  // nobody else can have followed none
  not_yet_run_.clear();
  if (!first) not_yet_run_.insert(roll_.begin(), roll_.end());
  roll_.clear();
  standbys_.clear();
  for (const auto& node : nodes_) node->voter = node->index >= 0;
  std::vector<const Node*> able;
  for (const Node* node : members_) {
    roll_.push_back(node->peer.id);
    if (node->peer.id != options_.id && !node->peer.address.empty()) able.push_back(node);
  }
  // Apart from each other: a rack that is lost should not take them all.
  const size_t standbys = std::min(kStandbys, able.size());
  for (size_t i = 0; i < standbys; ++i)
    standbys_.push_back(able[(2 * i + 1) * able.size() / (2 * standbys)]->peer);
  stage_ = Stage::kRunning;
  waiting_ns_ = enough_ns_ = -1;
  lost_some_ = false;
  claimed_ = granted_ = false;
  broadcast_ = true;
  feed(Agreed{});
  actions_->emplace_back(Committed{generation_, nonce_});
}

}  // namespace lockstep::launcher::control
