// What a coordinator hears of each node, whom it leaves out, and what it tells each.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "launcher/control/coordinator.h"

namespace lockstep::launcher::control {
void Coordinator::on(const Report& report, int64_t now_ns, NodeActions& actions) {
  const Call call(*this, now_ns, actions);
  if (formation_.in<Over>() != nullptr || refuses(report) || is_yet_to_start_over(report)) return;
  Node* known = roster_.find(report.id);
  Node& node = known != nullptr ? *known : admit(report);
  // [P23] A report that is older than the last one says nothing.
  if (report.sequence <= node.sequence && options_.without != Rule::kP23) return;
  roster_.hear(node, report, now_ns_);
  quorum_.note_ran(report.id, report.committed);
  if (std::exchange(node.suspect, false)) out().emplace_back(Changed{});
  formation_.note_promise(node, report, options_.id);
  // [P18] The job has gone on without this coordinator.
  if (report.committed > quorum_.base() && options_.without != Rule::kP18)
    return step_down(
        text("node ", node.name, " runs generation ", report.committed, " of another coordinator"));
  LOCKSTEP_CHECK_RULE(P18, report.committed <= quorum_.base(), "node ", node.name, " runs ",
                      report.committed, ", base ", quorum_.base());
  if (report.stops > stops_ && quorum_.may_stop(roster_.count_voters())) {
    stops_ = report.stops;
    feed(StopRequested{report.stop_signal});
  }
  if (node.ready && formation_.all_promised()) try_commit();
  if (formation_.in<Running>() != nullptr && node.index >= 0) note_running(node, report);
  if (roster_.find(report.id) == &node) note_health(node, report);
  if (formation_.in<Over>() == nullptr && !orders_changed_) order(node);
  settle();
}

// The first generation's ranks compare their configs themselves, and name the keys.
bool Coordinator::refuses(const Report& report) {
  Node* known = roster_.find(report.id);
  const bool runs = known != nullptr && known->index >= 0;
  if (!quorum_.first() && !runs && report.run != options_.run && !refused_.contains(report.id)) {
    const std::string why =
        "its config differs from the coordinator's in a key that all ranks share; compare the "
        "command lines";
    refused_[report.id] = {kExitConfig, why};
    record("node_refused", text("node ", report.name, ": ", why));
    if (known != nullptr) evict(*known, why);
  }
  const auto found = refused_.find(report.id);
  if (found == refused_.end()) return false;
  Node unknown;
  unknown.peer.id = report.id;
  Order order = order_for(unknown);
  order.generation = std::max(formation_.generation(), report.promised + 1);
  order.duty = Duty::kFinish;
  order.exit_status = found->second.exit_status;
  order.reason = found->second.reason;
  out().emplace_back(Send{report.id, std::move(order)});
  return true;
}

// [P18] It looks for the coordinator before this one, finds nobody, and comes back as a new node.
bool Coordinator::is_yet_to_start_over(const Report& report) const {
  return quorum_.first() && report.committed > quorum_.base() && report.follows == 0;
}

Node& Coordinator::admit(const Report& report) {
  Node& node = roster_.admit(report);
  node.joined_ns = now_ns_;
  node.voter = quorum_.has_member(report.id);
  // Barred before its connection broke, or by another coordinator.
  if (options_.bars_wrong_nodes && report.computes_wrongly) roster_.bar(node);
  if (options_.max_nodes > 1)
    record(node.barred ? "node_barred" : "node_joined",
           report.name + (node.barred ? " runs no workers: it was barred earlier" : ""));
  out().emplace_back(Changed{});
  return node;
}

void Coordinator::note_running(Node& node, const Report& report) {
  LOCKSTEP_CHECK(formation_.in<Running>() != nullptr && node.index >= 0, "node ", node.name);
  if (report.committed != formation_.generation()) return;
  if (!report.spawn_error.empty() && formation_.members().size() > 1) {
    const std::string why = text("cannot start workers: ", report.spawn_error);
    refused_[node.peer.id] = {kExitBug, why};
    return evict(node, why);
  }
  const bool known = node.spawned;
  formation_.note_spawned(node, report);
  if (!known && !report.spawn_error.empty()) feed(SpawnFailed{report.spawn_error});
  if (formation_.in<Running>() == nullptr) return;
  formation_.note_samples(node, report);
  // The supervisor knows of no worker before all have started. A later report says the exits again.
  if (!formation_.all_spawned()) return;
  bar_if_wrong(node, report);
  formation_.note_exits(node, report, now_ns_);
}

void Coordinator::bar_if_wrong(Node& node, const Report& report) {
  if (!options_.bars_wrong_nodes || options_.max_nodes == 1 || node.barred) return;
  const auto wrong = std::find_if(report.exits.begin(), report.exits.end(),
                                  [](const WorkerExit& exit) { return exit.found_wrong(); });
  if (wrong == report.exits.end()) return;
  bar(node, text("an audit found wrong bits on rank ", wrong->rank));
}

// What the counters of a node's hardware say is written where it is new. A node is not barred while
// the others could not go on without it: what has failed may do no harm.
void Coordinator::note_health(Node& node, const Report& report) {
  const std::string named = node.name.empty() ? "" : text("node ", node.name, ": ");
  for (const std::string& line : report.health)
    if (std::find(node.health.begin(), node.health.end(), line) == node.health.end())
      record("health", named + line);
  if (node.health != report.health) out().emplace_back(Changed{});
  node.health = report.health;
  if (!options_.bars_broken_nodes || report.broken.empty() || node.barred) return;
  // The supervisor knows of no worker before all have started.
  if (node.index >= 0 && !formation_.all_spawned()) return;
  if (can_do_without(node)) return bar(node, report.broken);
  if (formation_.in<Running>() != nullptr && !std::exchange(node.kept, true))
    record(
        "health",
        text(named, "it keeps its workers, as the job cannot go on without it: ", report.broken));
}

bool Coordinator::can_do_without(const Node& node) const {
  GenerationSize::Counted left = counted();
  const bool counts = roster_.eligible(node);
  if (counts) --left.have;
  const size_t voters = roster_.count_eligible_voters() - (counts && node.voter ? 1 : 0);
  left.lacks_quorum = !quorum_.first() && !quorum_.reached(voters);
  return size_.suffice(left) && (node.index < 0 || supervisor_.may_restart());
}

void Coordinator::bar(Node& node, const std::string& why) {
  roster_.bar(node);
  record("node_barred", text("node ", node.name, " is barred from running workers: ", why,
                             "; leave it out of the next job (sbatch --exclude)"));
  if (node.index >= 0) return leave_out(node, why);
  out().emplace_back(Changed{});
}

// The slow node is a spare from now on, the last one that is taken.
void Coordinator::replace(const ReplaceRank& action) {
  const Node* found = formation_.node_of(action.rank);
  if (!options_.replaces_slow_nodes || found == nullptr || !roster_.has_spare()) return;
  Node* const known = roster_.find(found->peer.id);
  LOCKSTEP_CHECK(known == found, "node ", found->name, " is a member, and unknown");
  Node& node = *known;
  node.slow = true;
  const std::string why = text("rank ", action.rank, " is ", action.why);
  record("node_replaced", text("a spare replaces node ", node.name, ": ", why));
  leave_out(node, why);
}

// A spare joins once it has stayed for long enough and where it makes a step faster. Others that
// came a little later are waited for, so that all join by one change.
void Coordinator::look_for_growth() {
  const int64_t after_ns = options_.growth.after_ns;
  if (after_ns < 0 || formation_.in<Running>() == nullptr || !supervisor_.may_change() ||
      formation_.lost_a_member() || now_ns_ - committed_ns_ < after_ns)
    return;
  const int64_t now = std::ssize(formation_.members());
  int64_t stayed = 0, all = 0, longest_ns = 0;
  for (const auto& node : roster_.nodes()) {
    if (node->index >= 0 && !roster_.eligible(*node)) return;  // it may be lost soon
    if (node->index >= 0 || node->slow || !roster_.eligible(*node)) continue;
    ++all;
    const int64_t age_ns = now_ns_ - node->joined_ns;
    longest_ns = std::max(longest_ns, age_ns);
    if (age_ns >= after_ns) ++stayed;
  }
  if (stayed == 0 || (stayed < all && longest_ns < 2 * after_ns)) return;
  const int64_t most =
      std::clamp(now + stayed - options_.spares, now, std::max(now, options_.max_nodes));
  const int64_t next = grown(options_.growth.slots, formation_.per_node(), now, most);
  if (next == now) return say_idle(all);
  ask_for_change(
      next,
      text("from ", now, " to ", lockstep::counted(next, "node"), ", because ", next - now,
           next - now == 1 ? " spare makes" : " spares make", " a step faster (",
           rounds(options_.growth.slots, next * formation_.per_node()), " rounds of slots for ",
           rounds(options_.growth.slots, now * formation_.per_node()), ")"));
}

void Coordinator::say_idle(int64_t spares) {
  if (std::exchange(said_idle_, spares) == spares) return;
  const int64_t now = std::ssize(formation_.members()), per_node = formation_.per_node();
  const int64_t helps = next_faster(options_.growth.slots, per_node, now);
  record("spare_idle",
         text(lockstep::counted(spares, "node"), " stay spare: ", now, " nodes take ",
              rounds(options_.growth.slots, now * per_node), " rounds for ", options_.growth.slots,
              " slots, and more nodes take fewer ",
              helps == 0 ? std::string("in no case") : text("only from ", helps, " nodes on")));
}

void Coordinator::ask_for_change(int64_t nodes, const std::string& why) {
  LOCKSTEP_CHECK(supervisor_.may_change() && nodes >= 1 && nodes <= options_.max_nodes, nodes);
  change_to_ = nodes;
  record("change_planned", why);
  feed(ChangeAsked{});
}

void Coordinator::leave_out(Node& node, const std::string& why) {
  LOCKSTEP_CHECK(node.index >= 0, "node ", node.name, " is no member");
  out().emplace_back(Changed{});
  size_.note_lost_member();
  formation_.lose(node, why);
  LOCKSTEP_CHECK(!formation_.is_member(node), "node ", node.name, " is lost, and a member");
}

void Coordinator::on(const PeerGone& event, int64_t now_ns, NodeActions& actions) {
  const Call call(*this, now_ns, actions);
  Node* node = roster_.find(event.id);
  if (node == nullptr || formation_.in<Over>() != nullptr) return;
  LOCKSTEP_CHECK(node->heard_ns <= now_ns, "heard at ", node->heard_ns, ", gone at ", now_ns);
  node->gone_ns = now_ns;
  if (formation_.in<Finishing>() != nullptr) evict(*node, "its agent has ended");
  settle();
}

// Ensures: the roster holds only nodes that are there.
void Coordinator::look_at_nodes() {
  if (roster_.look_for_silence(now_ns_)) out().emplace_back(Changed{});
  for (const auto& node : roster_.nodes()) {
    std::string why = roster_.reason_lost(*node, now_ns_);
    if (why.empty()) why = formation_.reason_late(*node, options_.id, options_.timing, now_ns_);
    if (!why.empty()) evict(*node, why);
  }
  roster_.sweep();
  for (const auto& node : roster_.nodes())
    LOCKSTEP_CHECK_RULE(
        P22, node->peer.id == options_.id || now_ns_ - node->heard_ns < options_.timing.evict_ns,
        "node ", node->name, " is silent for ", now_ns_ - node->heard_ns, " ns");
}

void Coordinator::evict(Node& node, const std::string& why) {
  if (!roster_.remove(node)) return;
  if (options_.max_nodes > 1 && formation_.in<Finishing>() == nullptr)  // then they are to leave
    record("node_lost", text("node ", node.name, ": ", why));
  if (node.index >= 0) return leave_out(node, why);
  out().emplace_back(Changed{});
}

// At the end the coordinator itself gets no order: it leaves when the others have left.
void Coordinator::order(const Node& node) {
  if (formation_.in<Finishing>() != nullptr && node.peer.id == options_.id) return;
  out().emplace_back(Send{node.peer.id, order_for(node)});
}

Order Coordinator::order_for(const Node& node) {
  LOCKSTEP_CHECK(formation_.in<Over>() == nullptr, "node ", node.name, " after the end");
  Order order;
  order.leader = options_.id;
  order.sequence = ++sequence_;
  order.generation = formation_.generation();
  order.base = quorum_.base();
  order.safe_step = supervisor_.safe_step();
  order.restarts = supervisor_.restarts_since_safe();
  order.patience = patience_of(options_.timing);
  const bool promised_away = node.promised > order.generation ||
                             (node.promised == order.generation && node.promised_to != options_.id);
  // [P21] The node obeys this number, whatever it has promised, and promises nothing by it.
  const int64_t obeyed = options_.without == Rule::kP21
                             ? order.generation
                             : std::max(order.generation, node.promised + 1);
  if (const auto* finishing = formation_.in<Finishing>()) {
    order.duty = Duty::kFinish;
    order.generation = obeyed;
    order.exit_status = finishing->end.exit_status;
    order.reason = finishing->end.reason;
  } else if (formation_.in<Gathering>() != nullptr || (node.index < 0 && promised_away)) {
    order.generation = obeyed;
  } else if (node.index < 0) {
    order.duty = Duty::kPark;
    order.standbys = standbys_;
  } else if (formation_.in<Preparing>() != nullptr) {
    order.duty = Duty::kPrepare;
  } else {
    fill_run(order, node);
  }
  LOCKSTEP_CHECK_RULE(P21,
                      (order.duty != Duty::kFinish && order.duty != Duty::kWait) ||
                          order.generation > node.promised,
                      "node ", node.name, " has promised ", node.promised, " and is told ",
                      order.generation);
  return order;
}

void Coordinator::fill_run(Order& order, const Node& node) const {
  const auto* running = formation_.in<Running>();
  LOCKSTEP_CHECK(running != nullptr && node.index >= 0, "node ", node.name, " runs nothing");
  LOCKSTEP_CHECK(formation_.generation() == quorum_.base(), "generation ", formation_.generation(),
                 " is not committed, ", quorum_.base(), " is");
  order.duty = Duty::kRun;
  order.first_rank = formation_.first_rank(node);
  order.count = formation_.per_node();
  order.world_size = formation_.world_size();
  order.nonce = formation_.nonce();
  order.change = running->change;
  order.stop = running->stop;
  order.kill = running->kill;
  order.exits_seen = static_cast<int32_t>(node.exits_seen);
  order.standbys = standbys_;
  const size_t nodes = roster_.nodes().size();
  order.parked = static_cast<int64_t>(nodes - std::min(nodes, formation_.members().size()));
  const bool standby = std::any_of(standbys_.begin(), standbys_.end(),
                                   [&](const Peer& peer) { return peer.id == node.peer.id; });
  if (standby && node.members_of != quorum_.base()) order.members = quorum_.members();
  if (standby) order.barred = roster_.barred_names();
}

}  // namespace lockstep::launcher::control
