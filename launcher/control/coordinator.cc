#include "launcher/control/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

SupervisorOptions succeeding(SupervisorOptions options, const Inheritance& before) {
  if (before.generation < 0) return options;
  options.first_generation = before.generation;
  options.safe_step = before.safe_step;
  options.restarts_since_safe = before.restarts;
  return options;
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, Inheritance before, int64_t now_ns)
    : options_(std::move(options)),
      before_(std::move(before)),
      supervisor_(succeeding(options_.supervisor, before_)),
      now_ns_(now_ns),
      base_(before_.generation),
      roll_(before_.roll),
      generation_(base_ < 0 ? options_.supervisor.first_generation : base_ + 1),
      waiting_ns_(now_ns),
      sequence_(now_ns),
      reminded_ns_(now_ns) {}

void Coordinator::on(const Report& report, int64_t now_ns, Actions& actions) {
  now_ns_ = now_ns;
  actions_ = &actions;
  if (stage_ == Stage::kOver) return;
  if (dismisses(report)) return;
  const auto found = by_id_.find(report.id);
  Node* node = found == by_id_.end() ? admit(report) : found->second;
  if (report.sequence <= node->sequence) return;
  note(*node, report);
  if (report.committed > base_) {
    step_down(text("node ", node->name, " runs generation ", report.committed, " of another one"));
    return;
  }
  if (report.stops > stops_ && may_stop()) {  // it says it again
    stops_ = report.stops;
    feed(StopRequested{report.stop_signal});
  }
  if (stage_ == Stage::kPreparing && node->ready && ready_ == members_.size()) try_commit();
  if (stage_ == Stage::kRunning && node->index >= 0) note_running(*node, report);
  if (stage_ != Stage::kOver && !broadcast_) order(*node);
  settle();
}

bool Coordinator::dismisses(const Report& report) {
  // The first generation's ranks compare their configs themselves, and name the keys.
  const auto known = by_id_.find(report.id);
  const bool runs = known != by_id_.end() && known->second->index >= 0;
  if (base_ >= 0 && !runs && report.run != options_.run && !dismissed_.contains(report.id)) {
    const std::string why =
        "its config is not that of the others in a key that all ranks share; "
        "compare the command lines";
    dismissed_[report.id] = {kExitConfig, why};
    record("node_refused", text("node ", report.name, ": ", why));
    if (known != by_id_.end()) evict(*known->second, why);
  }
  const auto found = dismissed_.find(report.id);
  if (found == dismissed_.end()) return false;
  Node stranger;
  stranger.peer.id = report.id;
  Order order = order_for(stranger);
  order.generation = std::max(generation_, report.promised + 1);
  order.duty = Duty::kFinish;
  order.exit_status = found->second.exit_status;
  order.reason = found->second.reason;
  actions_->emplace_back(Send{report.id, std::move(order)});
  return true;
}

Coordinator::Node* Coordinator::admit(const Report& report) {
  nodes_.push_back(std::make_unique<Node>());
  Node* node = nodes_.back().get();
  by_id_[report.id] = node;
  node->peer.id = report.id;
  node->name = report.name;
  node->voter = std::find(roll_.begin(), roll_.end(), report.id) != roll_.end();
  if (options_.max_nodes > 1) record("node_joined", report.name);
  actions_->emplace_back(Changed{});
  return node;
}

void Coordinator::note(Node& node, const Report& report) {
  node.heard_ns = now_ns_;
  node.gone_ns = -1;
  if (!report.name.empty()) node.name = report.name;
  if (!report.address.empty()) node.peer.address = report.address;
  node.sequence = report.sequence;
  node.follows = report.follows;
  node.promised = report.promised;
  node.promised_to = report.promised_to;
  node.strayed = report.strayed;
  node.committed = report.committed;
  if (report.committed == base_) not_yet_run_.erase(report.id);
  node.roll_of = report.roll_of;
  node.alive = report.alive;
  max_promised_ = std::max(max_promised_, report.promised);
  if (std::exchange(node.suspect, false)) actions_->emplace_back(Changed{});
  if (stage_ != Stage::kPreparing || node.index < 0 || node.ready) return;
  node.ready =
      report.promised == generation_ && report.promised_to == options_.id && report.alive == 0;
  if (node.ready) ++ready_;
}

void Coordinator::note_running(Node& node, const Report& report) {
  if (report.committed != generation_) return;
  if (!report.spawn_error.empty() && members_.size() > 1) {
    dismissed_[node.peer.id] = {kExitBug, text("cannot start workers: ", report.spawn_error)};
    evict(node, dismissed_[node.peer.id].reason);
    return;
  }
  if (!node.spawned && (!report.pids.empty() || !report.spawn_error.empty())) {
    node.spawned = true;
    node.pids = report.pids;
    ++spawned_;
    if (!report.spawn_error.empty()) feed(SpawnFailed{report.spawn_error});
  }
  const int64_t first = node.index * per_node_;
  const size_t count = std::min(report.samples.size(), static_cast<size_t>(per_node_));
  for (size_t i = 0; i < count; ++i) samples_[static_cast<size_t>(first) + i] = report.samples[i];
  samples_new_ = samples_new_ || count > 0;
  if (spawned_ < members_.size()) return;  // said again once the supervisor knows of them
  const auto from = static_cast<size_t>(std::max(report.exits_from, 0));
  for (size_t i = node.exits_seen; i < from + report.exits.size() && i >= from; ++i) {
    const WorkerExit& exit = report.exits[i - from];
    ++node.exits_seen;
    const int64_t local = exit.rank - first;
    if (local < 0 || local >= per_node_ || ended_[static_cast<size_t>(exit.rank)]) continue;
    ended_[static_cast<size_t>(exit.rank)] = true;
    samples_[static_cast<size_t>(exit.rank)].progress = exit.progress;
    if (pending_.empty()) pending_alive_ns_ = now_ns_ - report.alive_ns;
    pending_.push_back(exit);
  }
}

void Coordinator::on(const PeerGone& event, int64_t now_ns, Actions& actions) {
  now_ns_ = now_ns;
  actions_ = &actions;
  const auto found = by_id_.find(event.id);
  if (found == by_id_.end() || stage_ == Stage::kOver) return;
  found->second->gone_ns = now_ns;
  if (stage_ == Stage::kFinishing) evict(*found->second, "it has left");
  settle();
}

void Coordinator::on(const Decided& event, int64_t now_ns, Actions& actions) {
  now_ns_ = now_ns;
  actions_ = &actions;
  const bool forming = stage_ == Stage::kGathering || stage_ == Stage::kPreparing;
  if (!forming || event.base != base_) return;
  if (!event.error.empty()) {
    step_down(event.error);
  } else if (!event.mine) {
    step_down(base_ < 0
                  ? "another node coordinates this job"
                  : text("another node has succeeded generation ", base_, ", or the job has ended"),
              true);
  } else if (stage_ == Stage::kPreparing && proposed_ && event.generation == generation_) {
    commit();
  } else if (event.generation == base_) {
    granted_ = true;
  }
  settle();
}

void Coordinator::on(const Superseded&, int64_t now_ns, Actions& actions) {
  now_ns_ = now_ns;
  actions_ = &actions;
  if (stage_ == Stage::kOver || stage_ == Stage::kFinishing || (base_ >= 0 && !rules())) return;
  step_down("another node coordinates this job");
}

void Coordinator::on(int64_t now_ns, Actions& actions) {
  const int64_t gap_ns = now_ns - now_ns_;
  // Who was stopped, or had no processor, could not hear.
  if (gap_ns > options_.timing.suspect_ns / 2) {
    for (auto& node : nodes_) node->heard_ns += gap_ns;
    if (waiting_ns_ >= 0) waiting_ns_ += gap_ns;
    if (enough_ns_ >= 0) enough_ns_ += gap_ns;
  }
  now_ns_ = now_ns;
  actions_ = &actions;
  if (stage_ == Stage::kOver || now_ns - scanned_ns_ < options_.timing.scan_ns) return;
  scanned_ns_ = now_ns;
  scan();
  if (stage_ == Stage::kGathering) gather();
  const int64_t patience_ns = base_ < 0 ? options_.timing.join_ns : options_.timing.fence_ns;
  if (stage_ == Stage::kPreparing && proposed_ && now_ns - proposed_ns_ >= patience_ns)
    step_down(text("the rendezvous does not answer for ", patience_ns / kMs, " ms"));
  if (stage_ == Stage::kRunning &&
      (samples_new_ || now_ns - fed_ns_ >= options_.timing.report_ns)) {
    samples_new_ = false;
    fed_ns_ = now_ns;
    feed(Tick{samples_});
  }
  settle();
}

void Coordinator::scan() {
  for (auto& node : nodes_) {
    if (node->peer.id == options_.id) continue;
    const bool suspect = now_ns_ - node->heard_ns >= options_.timing.suspect_ns;
    if (suspect && !std::exchange(node->suspect, true)) actions_->emplace_back(Changed{});
    if (const std::string why = reason_to_evict(*node); !why.empty()) evict(*node, why);
  }
  remove_evicted();  // before anybody counts the nodes
}

std::string Coordinator::reason_to_evict(const Node& node) const {
  const Timing& t = options_.timing;
  if (node.gone_ns >= 0 && now_ns_ - node.gone_ns >= t.reset_ns) return "its connection has ended";
  const int64_t silent_ns = now_ns_ - node.heard_ns;
  if (silent_ns >= t.evict_ns) return text("no word for ", silent_ns / kMs, " ms");
  if (stage_ != Stage::kPreparing || node.index < 0 || node.ready) return "";
  const bool burying = node.promised == generation_ && node.promised_to == options_.id;
  const int64_t waited_ns = now_ns_ - prepared_ns_;
  if (waited_ns < (burying ? t.reap_ns : t.ack_ns)) return "";
  return text(burying ? "its workers do not end" : "it does not agree", ", for ", waited_ns / kMs,
              " ms");
}

void Coordinator::evict(Node& node, const std::string& why) {
  if (by_id_.erase(node.peer.id) == 0) return;
  evicted_.push_back(&node);
  if (options_.max_nodes > 1 && stage_ != Stage::kFinishing)  // then they are to leave
    record("node_lost", text("node ", node.name, ": ", why));
  actions_->emplace_back(Changed{});
  if (node.index < 0) return;
  lost_some_ = true;
  members_[static_cast<size_t>(node.index)] = nullptr;
  if (stage_ == Stage::kPreparing) regroup_ = true;
  if (stage_ != Stage::kRunning) return;
  if (!node.spawned) ++spawned_;
  if (pending_.empty()) pending_alive_ns_ = node.heard_ns;
  for (int64_t rank = node.index * per_node_; rank < (node.index + 1) * per_node_; ++rank) {
    const auto at = static_cast<size_t>(rank);
    if (ended_[at]) continue;
    ended_[at] = true;
    WorkerExit exit;
    exit.rank = static_cast<int>(rank);
    exit.node_lost = text("node ", node.name, " lost: ", why);
    exit.progress = samples_[at].progress;
    pending_.push_back(std::move(exit));
  }
}

void Coordinator::remove_evicted() {
  if (evicted_.empty()) return;
  std::erase_if(nodes_, [this](const std::unique_ptr<Node>& node) {
    return std::find(evicted_.begin(), evicted_.end(), node.get()) != evicted_.end();
  });
  evicted_.clear();
}

void Coordinator::settle() {
  remove_evicted();
  if (std::exchange(regroup_, false) && stage_ == Stage::kPreparing) {
    const Nodes nodes = plan();
    if (nodes.count == 0) stage_ = Stage::kGathering;
    feed(nodes);
  }
  if (stage_ == Stage::kRunning) flush_exits();
  if (stage_ == Stage::kFinishing &&
      (nodes_.size() <= 1 || now_ns_ - finish_ns_ >= options_.timing.linger_ns)) {
    stage_ = Stage::kOver;
    leave();
  }
  if (std::exchange(broadcast_, false) && stage_ != Stage::kOver)
    for (const auto& node : nodes_) order(*node);
}

// The nodes of the next generation are counted when its forming is decided: with the last end.
void Coordinator::flush_exits() {
  if (spawned_ == members_.size() && supervisor_.state() == State::kForming) feed(Started{});
  if (pending_.empty() || supervisor_.state() == State::kForming) return;
  reaped_ += pending_.size();
  const WorkersExited event{std::exchange(pending_, {}), pending_alive_ns_};
  if (reaped_ == ended_.size()) {
    const Nodes nodes = plan();
    feed(nodes);
    feed(event);
    if (supervisor_.state() == State::kForming && nodes.count == 0) stage_ = Stage::kGathering;
  } else {
    feed(event);
  }
}

void Coordinator::feed(const launcher::Event& event) {
  for (const launcher::Action& action : supervisor_.on(event, now_ns_)) {
    if (const auto* spawn = std::get_if<SpawnAll>(&action)) {
      prepare(*spawn);
    } else if (const auto* done = std::get_if<Finish>(&action)) {
      finish(*done);
    } else if (const auto* said = std::get_if<Record>(&action)) {
      actions_->emplace_back(with_pids(*said));
    } else {  // Signal: SIGTERM, always to all that are left
      (std::holds_alternative<KillAll>(action) ? kill_ : stop_) = true;
      broadcast_ = true;
    }
  }
  if (std::holds_alternative<Started>(event)) actions_->emplace_back(Changed{});
}

Record Coordinator::with_pids(Record record) const {
  if (record.rank >= 0) record.pids = {pid_of(record.rank)};
  if (record.event != "spawned") return record;
  for (const Node* node : members_) {
    if (node == nullptr) continue;
    record.pids.insert(record.pids.end(), node->pids.begin(), node->pids.end());
  }
  return record;
}

void Coordinator::finish(const Finish& action) {
  stage_ = Stage::kFinishing;
  finish_ = action;
  finish_ns_ = now_ns_;
  for_all_ = (rules() || granted_) && 2 * voters() >= roll_.size();
  broadcast_ = true;
}

void Coordinator::leave() {
  actions_->emplace_back(Leave{finish_.exit_status, finish_.reason, /*alone=*/false, for_all_});
}

void Coordinator::step_down(std::string reason, bool succeeded) {
  stage_ = Stage::kOver;
  actions_->emplace_back(SteppedDown{std::move(reason), succeeded});
}

void Coordinator::record(std::string event, std::string reason) {
  const auto world_size = static_cast<int64_t>(ended_.size());
  actions_->emplace_back(Record{std::move(event), generation_, world_size, -1, std::move(reason)});
}

const Coordinator::Node* Coordinator::node_of(int64_t rank) const {
  const auto index = static_cast<size_t>(per_node_ > 0 ? rank / per_node_ : 0);
  return index < members_.size() ? members_[index] : nullptr;
}

int32_t Coordinator::pid_of(int64_t rank) const {
  const Node* node = node_of(rank);
  const auto local = static_cast<size_t>(per_node_ > 0 ? rank % per_node_ : 0);
  return node != nullptr && local < node->pids.size() ? node->pids[local] : -1;
}

Progress Coordinator::progress_of(int64_t rank) const {
  const auto at = static_cast<size_t>(rank);
  return at < samples_.size() ? samples_[at].progress : Progress{};
}

// At the end it stays until the others know, and leaves then.
void Coordinator::order(const Node& node) {
  if (stage_ == Stage::kFinishing && node.peer.id == options_.id) return;
  actions_->emplace_back(Send{node.peer.id, order_for(node)});
}

// What the node shall be, in whole.
Order Coordinator::order_for(const Node& node) {
  Order order;
  order.leader = options_.id;
  order.sequence = ++sequence_;
  order.generation = generation_;
  order.base = base_;
  order.safe_step = supervisor_.safe_step();
  order.restarts = supervisor_.restarts_since_safe();
  const bool promised_away = node.promised > generation_ ||
                             (node.promised == generation_ && node.promised_to != options_.id);
  const int64_t heard = std::max(generation_, node.promised + 1);  // it binds nobody
  if (stage_ == Stage::kFinishing) {
    order.duty = Duty::kFinish;
    order.generation = heard;
    order.exit_status = finish_.exit_status;
    order.reason = finish_.reason;
  } else if (stage_ == Stage::kGathering || (node.index < 0 && promised_away)) {
    order.generation = heard;
  } else if (node.index < 0) {
    order.duty = Duty::kPark;
    order.standbys = standbys_;
  } else if (stage_ == Stage::kPreparing) {
    order.duty = Duty::kPrepare;
  } else {
    order.duty = Duty::kRun;
    order.first_rank = node.index * per_node_;
    order.count = per_node_;
    order.world_size = static_cast<int64_t>(ended_.size());
    order.nonce = nonce_;
    order.stop = stop_;
    order.kill = kill_;
    order.exits_seen = static_cast<int32_t>(node.exits_seen);
    order.standbys = standbys_;
    order.parked = static_cast<int64_t>(nodes_.size() - std::min(nodes_.size(), members_.size()));
    const bool standby = std::any_of(standbys_.begin(), standbys_.end(),
                                     [&](const Peer& peer) { return peer.id == node.peer.id; });
    if (standby && node.roll_of != base_) order.roll = roll_;
  }
  return order;
}

}  // namespace lockstep::launcher::control
