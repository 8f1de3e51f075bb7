#include "launcher/control/generation_size.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::launcher::control {

int64_t rounds(int64_t slots, int64_t ranks) {
  LOCKSTEP_CHECK(slots >= 1 && ranks >= 1, slots, " slots, ", ranks, " ranks");
  return (slots + ranks - 1) / ranks;
}

int64_t grown(int64_t slots, int64_t per_node, int64_t now, int64_t most) {
  LOCKSTEP_CHECK(now >= 1 && most >= now, now, " to ", most, " nodes");
  const int64_t least = rounds(slots, most * per_node);
  if (least == rounds(slots, now * per_node)) return now;
  const int64_t ranks = rounds(slots, least);  // so many ranks make that few rounds
  const int64_t nodes = rounds(ranks, per_node);
  LOCKSTEP_CHECK(nodes > now && nodes <= most, nodes, " of ", now, " to ", most);
  return nodes;
}

int64_t next_faster(int64_t slots, int64_t per_node, int64_t now) {
  const int64_t have = rounds(slots, now * per_node);
  return have == 1 ? 0 : rounds(rounds(slots, have - 1), per_node);
}

GenerationSize::GenerationSize(const CoordinatorOptions& options, int64_t now_ns)
    : options_(options), waiting_ns_(now_ns) {
  LOCKSTEP_CHECK(options.min_nodes >= 1 && options.min_nodes <= options.max_nodes,
                 options.min_nodes, " to ", options.max_nodes, " nodes");
  LOCKSTEP_CHECK(options.spares >= 0 && now_ns >= 0, options.spares, " spares, at ", now_ns);
}

int64_t GenerationSize::waited_ns(int64_t now_ns) const {
  LOCKSTEP_CHECK(waiting_ns_ >= 0 && now_ns >= waiting_ns_, "since ", waiting_ns_, " at ", now_ns);
  return now_ns - waiting_ns_;
}

int64_t GenerationSize::without_quorum_ns(int64_t now_ns) const {
  LOCKSTEP_CHECK(now_ns >= quorum_ns_, "since ", quorum_ns_, " at ", now_ns);
  return std::min(waited_ns(now_ns), now_ns - quorum_ns_);
}

void GenerationSize::note_quorum(int64_t now_ns) {
  LOCKSTEP_CHECK(waiting_ns_ >= 0 && now_ns >= quorum_ns_, waiting_ns_, " ", quorum_ns_, " ",
                 now_ns);
  quorum_ns_ = now_ns;
}

Nodes GenerationSize::plan(const Counted& counted, int64_t now_ns) {
  const auto& o = options_;
  LOCKSTEP_CHECK(counted.have >= 0 && counted.before >= 0, counted.have, " of ", counted.before);
  // The others decide whether the job goes on or ends.
  if (counted.lacks_quorum) return wait_for(INT64_MAX, "", now_ns);
  if (counted.first && counted.have < o.wanted_at_first()) {
    const Nodes nodes = plan_first(counted.have, now_ns);
    if (nodes.count <= 0) return nodes;
  }
  const int64_t least = this->least(counted);
  if (lost_member_ && !counted.first && o.on_node_loss == OnNodeLoss::kFail)
    return wait_for(0, "a node was lost, and --on-node-loss is fail", now_ns);
  if (counted.have < least) {
    const std::string reason = text(counted.have, " nodes are left and ", least, " are needed");
    // A spare may still come: its connection broke, or it has not found this standby yet.
    if (o.on_node_loss == OnNodeLoss::kSpare)
      return wait_for(o.timing.fence_ns, reason + "; no spare node is available", now_ns);
    return wait_for(shrinks(counted) ? o.last_call_ns : o.timing.join_ns, reason, now_ns);
  }
  const int64_t wanted =
      std::max(counted.have - o.spares, std::min<int64_t>(counted.before, counted.have));
  Nodes nodes;
  const int64_t most = std::min<int64_t>(counted.have, o.max_nodes);
  LOCKSTEP_CHECK(o.min_nodes <= most, counted.have, " nodes are enough, and not ", o.min_nodes);
  nodes.count = std::clamp(wanted, o.min_nodes, most);
  return nodes;
}

bool GenerationSize::shrinks(const Counted& counted) const {
  return options_.on_node_loss == OnNodeLoss::kShrink || counted.first;
}

int64_t GenerationSize::least(const Counted& counted) const {
  return shrinks(counted) ? options_.min_nodes : std::max(counted.before, options_.min_nodes);
}

bool GenerationSize::suffice(const Counted& counted) const {
  const bool ends = options_.on_node_loss == OnNodeLoss::kFail && !counted.first;
  return !counted.lacks_quorum && !ends && counted.have >= least(counted);
}

// Between min_nodes and all that are wanted it waits for last_call_ns.
Nodes GenerationSize::plan_first(int64_t have, int64_t now_ns) {
  const auto& o = options_;
  if (have < o.min_nodes) {
    enough_ns_ = -1;
    return wait_for(o.timing.join_ns, text("only ", have, " of ", o.min_nodes, " nodes joined"),
                    now_ns);
  }
  if (enough_ns_ < 0) enough_ns_ = now_ns;
  LOCKSTEP_CHECK(now_ns >= enough_ns_, "enough since ", enough_ns_, " at ", now_ns);
  Nodes nodes;
  nodes.count = now_ns - enough_ns_ >= o.last_call_ns ? have : 0;
  return nodes;
}

// Waiting has a limit, and then a reason to end.
Nodes GenerationSize::wait_for(int64_t limit_ns, std::string otherwise, int64_t now_ns) {
  if (waiting_ns_ < 0) waiting_ns_ = now_ns;
  LOCKSTEP_CHECK(now_ns >= waiting_ns_, "it waits since ", waiting_ns_, " at ", now_ns);
  Nodes nodes;
  nodes.count = now_ns - waiting_ns_ < limit_ns ? 0 : -1;
  nodes.reason = std::move(otherwise);
  return nodes;
}

void GenerationSize::forgive_sleep(int64_t gap_ns) {
  LOCKSTEP_CHECK(gap_ns >= 0, "slept for ", gap_ns);
  for (int64_t* since_ns : {&waiting_ns_, &enough_ns_, &quorum_ns_})
    if (*since_ns >= 0) *since_ns += gap_ns;
}

void GenerationSize::note_committed() {
  waiting_ns_ = enough_ns_ = quorum_ns_ = -1;
  lost_member_ = false;
}

}  // namespace lockstep::launcher::control
