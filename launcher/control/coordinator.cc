#include "launcher/control/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "launcher/host/environment.h"

namespace lockstep::launcher::control {
namespace {

constexpr int64_t kRemindNs = 30'000 * kMs;

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, Handover before, int64_t now_ns)
    : options_(std::move(options)),
      before_(std::move(before)),
      supervisor_(succeeding(options_.supervisor, before_)),
      roster_(options_.id, options_.timing, options_.without, before_.barred),
      size_(options_, now_ns),
      quorum_(options_.id, before_, options_.without),
      formation_(next_generation(before_, options_.supervisor.first_generation), options_.without),
      now_ns_(now_ns),
      reminded_ns_(now_ns),
      sequence_(now_ns) {}

void Coordinator::begin_call(int64_t now_ns, NodeActions& actions) {
  now_ns_ = now_ns;
  actions_ = &actions;
}

void Coordinator::on(const Report& report, int64_t now_ns, NodeActions& actions) {
  begin_call(now_ns, actions);
  if (formation_.in<Over>() != nullptr || refuses(report) || is_yet_to_start_over(report)) return;
  Node* known = roster_.find(report.id);
  Node& node = known != nullptr ? *known : admit(report);
  // [P23] A report that is older than the last one says nothing.
  if (report.sequence <= node.sequence && options_.without != Rule::kP23) return;
  roster_.hear(node, report, now_ns_);
  quorum_.note_ran(report.id, report.committed);
  if (std::exchange(node.suspect, false)) actions_->emplace_back(Changed{});
  formation_.note_promise(node, report, options_.id);
  // [P18] The job has gone on without this coordinator.
  if (report.committed > quorum_.base() && options_.without != Rule::kP18)
    return step_down(
        text("node ", node.name, " runs generation ", report.committed, " of another coordinator"));
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
  actions_->emplace_back(Send{report.id, std::move(order)});
  return true;
}

// [P18] It looks for the coordinator before this one, finds nobody, and comes back as a new node.
bool Coordinator::is_yet_to_start_over(const Report& report) const {
  return quorum_.first() && report.committed > quorum_.base() && report.follows == 0;
}

Node& Coordinator::admit(const Report& report) {
  Node& node = roster_.admit(report);
  node.voter = quorum_.has_member(report.id);
  // Barred before its connection broke, or by another coordinator.
  if (options_.bars_wrong_nodes && report.computes_wrongly) roster_.bar(node);
  if (options_.max_nodes > 1)
    record(node.barred ? "node_barred" : "node_joined",
           report.name + (node.barred ? " runs no workers: it was barred earlier" : ""));
  actions_->emplace_back(Changed{});
  return node;
}

void Coordinator::note_running(Node& node, const Report& report) {
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
  if (node.health != report.health) actions_->emplace_back(Changed{});
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
  actions_->emplace_back(Changed{});
}

// The slow node is a spare from now on, the last one that is taken.
void Coordinator::replace(const ReplaceRank& action) {
  const Node* found = formation_.node_of(action.rank);
  if (!options_.replaces_slow_nodes || found == nullptr || !roster_.has_spare()) return;
  Node& node = *roster_.find(found->peer.id);
  node.slow = true;
  const std::string why = text("rank ", action.rank, " is ", action.why);
  record("node_replaced", text("a spare replaces node ", node.name, ": ", why));
  leave_out(node, why);
}

void Coordinator::leave_out(Node& node, const std::string& why) {
  actions_->emplace_back(Changed{});
  size_.note_lost_member();
  formation_.lose(node, why);
}

void Coordinator::on(const PeerGone& event, int64_t now_ns, NodeActions& actions) {
  begin_call(now_ns, actions);
  Node* node = roster_.find(event.id);
  if (node == nullptr || formation_.in<Over>() != nullptr) return;
  node->gone_ns = now_ns;
  if (formation_.in<Finishing>() != nullptr) evict(*node, "its agent has ended");
  settle();
}

// [P7] What the rendezvous has answered.
void Coordinator::on(const Decided& event, int64_t now_ns, NodeActions& actions) {
  begin_call(now_ns, actions);
  const auto* preparing = formation_.in<Preparing>();
  const bool forming = formation_.in<Gathering>() != nullptr || preparing != nullptr;
  if (!forming || event.base != quorum_.base()) return;
  if (!event.error.empty()) {
    step_down(event.error);
  } else if (!event.mine) {
    step_down(quorum_.first() ? "another node coordinates this job"
                              : text("another node already coordinates the generation after ",
                                     quorum_.base(), ", or the job is over"),
              true);
  } else if (preparing != nullptr && preparing->proposed_ns >= 0 &&
             event.generation == formation_.generation()) {
    commit();
  } else if (event.generation == quorum_.base()) {
    quorum_.grant_claim();
  }
  settle();
}

// [P19] A standby that has not committed yet learns from Decided whether another one has.
void Coordinator::on(const Superseded&, int64_t now_ns, NodeActions& actions) {
  begin_call(now_ns, actions);
  const bool ended = formation_.in<Over>() != nullptr || formation_.in<Finishing>() != nullptr;
  const bool leads = quorum_.first() || quorum_.has_committed();
  if (!ended && leads && options_.without != Rule::kP19)
    step_down("another node coordinates this job");
}

void Coordinator::on(int64_t now_ns, NodeActions& actions) {
  const Timing& t = options_.timing;
  // A coordinator that was stopped, or had no processor, could not hear the nodes.
  if (const int64_t gap_ns = now_ns - now_ns_; gap_ns > t.suspect_ns / 2) {
    roster_.forgive_sleep(gap_ns);
    size_.forgive_sleep(gap_ns);
  }
  begin_call(now_ns, actions);
  if (formation_.in<Over>() != nullptr || now_ns - looked_ns_ < t.scan_ns) return;
  looked_ns_ = now_ns;
  look_at_nodes();
  if (formation_.in<Gathering>() != nullptr) gather();
  const auto* preparing = formation_.in<Preparing>();
  const int64_t patience_ns = quorum_.first() ? t.join_ns : t.fence_ns;
  if (preparing != nullptr && preparing->proposed_ns >= 0 &&
      now_ns - preparing->proposed_ns >= patience_ns)
    step_down(text("the rendezvous has not answered for ", patience_ns / kMs, " ms"));
  if (auto* running = formation_.in<Running>();
      running != nullptr && (running->samples_new || now_ns - running->sampled_ns >= t.report_ns)) {
    running->samples_new = false;
    running->sampled_ns = now_ns;
    feed(Tick{formation_.samples()});
  }
  settle();
}

// Ensures: the roster holds only nodes that are there.
void Coordinator::look_at_nodes() {
  if (roster_.look_for_silence(now_ns_)) actions_->emplace_back(Changed{});
  for (const auto& node : roster_.nodes()) {
    std::string why = roster_.reason_lost(*node, now_ns_);
    if (why.empty()) why = formation_.reason_late(*node, options_.id, options_.timing, now_ns_);
    if (!why.empty()) evict(*node, why);
  }
  roster_.sweep();
}

void Coordinator::evict(Node& node, const std::string& why) {
  if (!roster_.remove(node)) return;
  if (options_.max_nodes > 1 && formation_.in<Finishing>() == nullptr)  // then they are to leave
    record("node_lost", text("lost node ", node.name, ": ", why));
  if (node.index >= 0) return leave_out(node, why);
  actions_->emplace_back(Changed{});
}

void Coordinator::settle() {
  roster_.sweep();
  if (formation_.in<Preparing>() != nullptr && formation_.lost_a_member()) {
    const Nodes nodes = plan();
    if (nodes.count == 0) formation_.enter(Gathering{});
    feed(nodes);
  }
  if (formation_.in<Running>() != nullptr) tell_exits();
  if (const auto* finishing = formation_.in<Finishing>();
      finishing != nullptr &&
      (roster_.nodes().size() <= 1 || now_ns_ - finishing->since_ns >= options_.timing.linger_ns)) {
    actions_->emplace_back(Leave{finishing->end.exit_status, finishing->end.reason,
                                 /*alone=*/false, finishing->for_all});
    formation_.enter(Over{});
  }
  if (std::exchange(orders_changed_, false) && formation_.in<Over>() == nullptr)
    for (const auto& node : roster_.nodes()) order(*node);
}

GenerationSize::Counted Coordinator::counted() const {
  return {.have = roster_.count_eligible(),
          .before = static_cast<int64_t>(quorum_.members().size()),
          .first = quorum_.first(),
          .lacks_quorum = !quorum_.first() && !quorum_.has_committed() &&
                          !quorum_.reached(roster_.count_voters())};
}

Nodes Coordinator::plan() {
  Nodes nodes = size_.plan(counted(), now_ns_);
  // [P10] No node has promised a newer generation than the next one.
  if (nodes.count > 0 && options_.without != Rule::kP10)
    nodes.next_generation = roster_.max_promised() + 1;
  if (quorum_.first() && size_.enough_just_came(now_ns_))
    record("waiting_for_nodes",
           text(roster_.count_eligible(), " of ", options_.max_nodes + options_.spares,
                " have joined; the others have ", options_.last_call_ns / (1000 * kMs), " s left"));
  return nodes;
}

void Coordinator::gather() {
  const bool begun = supervisor_.world_size() > 0;
  const bool takes_over = !begun && !quorum_.first();
  if (takes_over) {
    if (options_.without != Rule::kP10) formation_.number_at_least(roster_.max_promised() + 1);
    // It waits for all but the lost coordinator, and not longer than ack_ns.
    const auto expected = static_cast<int64_t>(quorum_.members().size()) - 1 + before_.parked;
    if (roster_.count_eligible() < expected && size_.waited_ns(now_ns_) < options_.timing.ack_ns)
      return;
    size_.note_lost_member();
  }
  const Nodes nodes = plan();
  if (nodes.count == 0) return keep_waiting();
  feed(nodes);
  if (begun || formation_.in<Gathering>() == nullptr) return;
  takes_over ? take_over() : feed(Begin{});
}

void Coordinator::take_over() { feed(loss_of_leader(before_, options_.supervisor.last_nproc())); }

// A coordinator that waits for nodes of a job that has begun has its name at the rendezvous. New
// nodes find it there, and so does the other half of the nodes. With fewer than half of the nodes
// it steps down after a while and looks for the others, which may have gone on.
void Coordinator::keep_waiting() {
  if (now_ns_ - reminded_ns_ >= kRemindNs) {
    reminded_ns_ = now_ns_;
    record("waiting_for_nodes",
           text(roster_.count_eligible(), " joined, at least ", options_.min_nodes, " are needed"));
  }
  if (quorum_.first()) return;
  const size_t voters = roster_.count_voters();
  if (!quorum_.reached(voters)) {
    if (size_.without_quorum_ns(now_ns_) < options_.timing.fence_ns) return;
    return step_down(
        text("only ", voters, " of ", quorum_.members().size(), " nodes can be reached"));
  }
  size_.note_quorum(now_ns_);
  if (quorum_.must_claim(voters))
    actions_->emplace_back(Propose{quorum_.proposal(quorum_.base(), voters)});
}

void Coordinator::prepare(const Prepare& action) {
  for (const auto& node : roster_.nodes()) node->leave_generation();
  formation_.prepare(action, roster_.choose(static_cast<size_t>(action.nodes), quorum_.members()),
                     nonce_of(options_.id, static_cast<uint64_t>(action.generation),
                              static_cast<uint64_t>(sequence_)),
                     now_ns_);
  orders_changed_ = true;
}

// [P6] to [P9] All members have promised the generation.
void Coordinator::try_commit() {
  size_t promises = 0, exclusive = 0;
  for (const Node* node : formation_.members()) {
    if (!node->voter) continue;
    ++promises;
    if (!node->promised_elsewhere || options_.without == Rule::kP9) ++exclusive;
  }
  Preparing& preparing = *formation_.in<Preparing>();
  if (!quorum_.reached(promises)) {
    step_down(text("only ", promises, " of ", quorum_.members().size(), " nodes agree"));
  } else if (quorum_.need_not_ask(exclusive)) {
    commit();
  } else if (preparing.proposed_ns < 0) {
    preparing.proposed_ns = now_ns_;
    actions_->emplace_back(Propose{quorum_.proposal(formation_.generation(), promises)});
  }
}

void Coordinator::commit() {
  std::vector<NodeId> members;
  for (const Node* node : formation_.members()) members.push_back(node->peer.id);
  for (const auto& node : roster_.nodes()) node->voter = node->index >= 0;
  quorum_.commit(formation_.generation(), std::move(members));
  standbys_ = formation_.standbys(options_.id);
  size_.note_committed();
  formation_.run();
  orders_changed_ = true;
  const Committed committed{formation_.generation(), formation_.nonce()};
  feed(committed);
  actions_->emplace_back(committed);
}

// With the last end the next generation is decided, so its nodes are counted first.
void Coordinator::tell_exits() {
  if (formation_.all_spawned() && supervisor_.state() == State::kForming) feed(Started{});
  if (formation_.in<Running>()->unreported.empty() || supervisor_.state() == State::kForming)
    return;
  const bool last = formation_.all_ended();
  const WorkersExited event = formation_.take_exits();
  if (!last) return feed(event);
  const Nodes nodes = plan();
  feed(nodes);
  feed(event);
  if (supervisor_.state() == State::kForming && nodes.count == 0) formation_.enter(Gathering{});
}

void Coordinator::feed(const JobEvent& event) {
  for (const JobAction& action : supervisor_.on(event, now_ns_)) {
    if (const auto* next = std::get_if<Prepare>(&action)) {
      prepare(*next);
    } else if (const auto* done = std::get_if<Finish>(&action)) {
      finish(*done);
    } else if (const auto* slow = std::get_if<ReplaceRank>(&action)) {
      replace(*slow);
    } else if (const auto* said = std::get_if<LoggedEvent>(&action)) {
      actions_->emplace_back(with_pids(*said));
    } else if (auto* running = formation_.in<Running>()) {
      (std::holds_alternative<KillWorkers>(action) ? running->kill : running->stop) = true;
      orders_changed_ = true;
    }
  }
  if (std::holds_alternative<Started>(event)) actions_->emplace_back(Changed{});
}

LoggedEvent Coordinator::with_pids(LoggedEvent event) const {
  if (event.rank >= 0) event.pid = formation_.pid_of(event.rank);
  if (event.event == "spawned") event.pids = formation_.all_pids();
  return event;
}

void Coordinator::finish(const Finish& action) {
  formation_.enter(Finishing{action, now_ns_, quorum_.ends_job(roster_.count_voters())});
  orders_changed_ = true;
}

void Coordinator::step_down(std::string reason, bool succeeded) {
  formation_.enter(Over{});
  actions_->emplace_back(SteppedDown{std::move(reason), succeeded});
}

void Coordinator::record(std::string event, std::string reason) {
  actions_->emplace_back(LoggedEvent{std::move(event), formation_.generation(),
                                     formation_.world_size(), -1, std::move(reason)});
}

// At the end the coordinator itself gets no order: it leaves when the others have left.
void Coordinator::order(const Node& node) {
  if (formation_.in<Finishing>() != nullptr && node.peer.id == options_.id) return;
  actions_->emplace_back(Send{node.peer.id, order_for(node)});
}

Order Coordinator::order_for(const Node& node) {
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
  return order;
}

void Coordinator::fill_run(Order& order, const Node& node) const {
  const auto* running = formation_.in<Running>();
  order.duty = Duty::kRun;
  order.first_rank = formation_.first_rank(node);
  order.count = formation_.per_node();
  order.world_size = formation_.world_size();
  order.nonce = formation_.nonce();
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
