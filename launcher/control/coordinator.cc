#include "launcher/control/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
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
      sequence_(now_ns) {
  LOCKSTEP_CHECK(options_.id != 0 && now_ns >= 0, options_.id, " at ", now_ns);
  LOCKSTEP_CHECK_RULE(P10, formation_.generation() > quorum_.base(), formation_.generation(),
                      " after ", quorum_.base());
}

Coordinator::Call::Call(Coordinator& owner, int64_t now_ns, NodeActions& actions) : owner_(owner) {
  LOCKSTEP_CHECK(owner.actions_ == nullptr, "node ", owner.options_.id, " is in another call");
  LOCKSTEP_CHECK(now_ns >= owner.now_ns_, "time went back from ", owner.now_ns_, " to ", now_ns);
  owner.now_ns_ = now_ns;
  owner.actions_ = &actions;
}

NodeActions& Coordinator::out() {
  LOCKSTEP_CHECK(actions_ != nullptr, "node ", options_.id, " is in no call");
  return *actions_;
}

// [P7] What the rendezvous has answered.
void Coordinator::on(const Decided& event, int64_t now_ns, NodeActions& actions) {
  const Call call(*this, now_ns, actions);
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
    quorum_.allow(event.generation);
    commit();
  } else if (event.generation == quorum_.base()) {
    quorum_.grant_claim();
  }
  settle();
}

// [P19] A standby that has not committed yet learns from Decided whether another one has.
void Coordinator::on(const Superseded&, int64_t now_ns, NodeActions& actions) {
  const Call call(*this, now_ns, actions);
  const bool ended = formation_.in<Over>() != nullptr || formation_.in<Finishing>() != nullptr;
  const bool leads = quorum_.first() || quorum_.has_committed();
  if (!ended && leads && options_.without != Rule::kP19)
    step_down("another node coordinates this job");
  LOCKSTEP_CHECK_RULE(P19, ended || !leads || formation_.in<Over>() != nullptr, "generation ",
                      formation_.generation(), ", base ", quorum_.base());
}

void Coordinator::on(int64_t now_ns, NodeActions& actions) {
  const Timing& t = options_.timing;
  // A coordinator that was stopped, or had no processor, could not hear the nodes.
  LOCKSTEP_CHECK(now_ns >= now_ns_, "time went back from ", now_ns_, " to ", now_ns);
  if (const int64_t gap_ns = now_ns - now_ns_; gap_ns > t.suspect_ns / 2) {
    roster_.forgive_sleep(gap_ns);
    size_.forgive_sleep(gap_ns);
  }
  const Call call(*this, now_ns, actions);
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
  look_for_growth();
  settle();
}

void Coordinator::settle() {
  roster_.sweep();
  if (formation_.in<Preparing>() != nullptr && formation_.lost_a_member()) {
    const Nodes nodes = plan();
    if (nodes.count == 0) formation_.enter(Gathering{});
    feed(nodes);
  }
  if (formation_.in<Running>() != nullptr) tell_exits();
  LOCKSTEP_CHECK(formation_.in<Preparing>() == nullptr || !formation_.lost_a_member(),
                 "a member of generation ", formation_.generation(), " is lost");
  if (const auto* finishing = formation_.in<Finishing>();
      finishing != nullptr &&
      (roster_.nodes().size() <= 1 || now_ns_ - finishing->since_ns >= options_.timing.linger_ns)) {
    out().emplace_back(Leave{finishing->end.exit_status, finishing->end.reason,
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
  if (change_to_ > 0 && nodes.count > change_to_) nodes.count = change_to_;
  // [P10] No node has promised a newer generation than the next one.
  if (nodes.count > 0 && options_.without != Rule::kP10)
    nodes.next_generation = roster_.max_promised() + 1;
  if (quorum_.first() && size_.enough_just_came(now_ns_))
    record("waiting_for_nodes", text(roster_.count_eligible(), " of ", options_.wanted_at_first(),
                                     " nodes have joined; the others have ",
                                     options_.last_call_ns / (1000 * kMs), " s more"));
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

void Coordinator::take_over() {
  LOCKSTEP_CHECK(!quorum_.first() && !quorum_.has_committed(), "base ", quorum_.base());
  LOCKSTEP_CHECK(formation_.in<Gathering>() != nullptr && supervisor_.world_size() == 0,
                 "generation ", formation_.generation(), " of ", supervisor_.world_size());
  feed(loss_of_leader(before_, options_.supervisor.last_nproc()));
}

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
    out().emplace_back(Propose{quorum_.proposal(quorum_.base(), voters)});
}

void Coordinator::prepare(const Prepare& action) {
  LOCKSTEP_CHECK_RULE(
      P10, action.generation > quorum_.base() && action.generation > roster_.max_promised(),
      "generation ", action.generation, " after ", quorum_.base(), ", promised ",
      roster_.max_promised());
  LOCKSTEP_CHECK(action.nodes >= 1 && action.nodes <= options_.max_nodes, action.nodes, " of ",
                 options_.max_nodes, " nodes");
  for (const auto& node : roster_.nodes()) node->leave_generation();
  formation_.prepare(action, roster_.choose(static_cast<size_t>(action.nodes), quorum_.members()),
                     nonce_of(options_.id, static_cast<uint64_t>(action.generation),
                              static_cast<uint64_t>(sequence_)),
                     now_ns_);
  orders_changed_ = true;
}

// [P6] to [P9] All members have promised the generation.
void Coordinator::try_commit() {
  LOCKSTEP_CHECK(formation_.in<Preparing>() != nullptr && !formation_.lost_a_member(),
                 "generation ", formation_.generation(), " is not prepared");
  const auto [promises, stayed] = this->promises();
  const size_t exclusive = options_.without == Rule::kP9 ? promises : stayed;
  Preparing& preparing = *formation_.in<Preparing>();
  if (!quorum_.reached(promises)) {
    step_down(text("only ", promises, " of ", quorum_.members().size(), " nodes agree"));
  } else if (quorum_.need_not_ask(exclusive)) {
    commit();
  } else if (preparing.proposed_ns < 0) {
    preparing.proposed_ns = now_ns_;
    out().emplace_back(Propose{quorum_.proposal(formation_.generation(), promises)});
  }
}

// Of the members of the generation that is prepared. It goes by what the nodes have said alone.
Quorum::Promises Coordinator::promises() const {
  Quorum::Promises promises;
  for (const Node* node : formation_.members()) {
    LOCKSTEP_CHECK(node != nullptr, "a member of generation ", formation_.generation(), " is lost");
    if (!node->voter) continue;
    ++promises.all;
    if (!node->promised_elsewhere) ++promises.exclusive;
  }
  return promises;
}

void Coordinator::commit() {
  LOCKSTEP_CHECK(
      supervisor_.state() == State::kForming && supervisor_.generation() == formation_.generation(),
      state_name(supervisor_.state()), ", generation ", supervisor_.generation(), " and ",
      formation_.generation());
  const Quorum::Promises promised = promises();
  formation_.run();
  std::vector<NodeId> members;
  for (const Node* node : formation_.members()) members.push_back(node->peer.id);
  quorum_.commit(formation_.generation(), std::move(members), promised);
  for (const auto& node : roster_.nodes()) node->voter = node->index >= 0;
  standbys_ = formation_.standbys(options_.id);
  size_.note_committed();
  committed_ns_ = now_ns_;
  change_to_ = said_idle_ = 0;
  orders_changed_ = true;
  const Committed committed{formation_.generation(), formation_.nonce()};
  feed(committed);
  out().emplace_back(committed);
}

// With the last end the next generation is decided, so its nodes are counted first.
void Coordinator::tell_exits() {
  if (formation_.all_spawned() && supervisor_.state() == State::kForming) feed(Started{});
  if (formation_.in<Running>()->unreported.empty() || supervisor_.state() == State::kForming)
    return;
  LOCKSTEP_CHECK(formation_.all_spawned(), "generation ", formation_.generation());
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
      out().emplace_back(with_places(*said));
    } else if (std::holds_alternative<ChangeWorkers>(action)) {
      LOCKSTEP_CHECK(formation_.in<Running>() != nullptr, "generation ", formation_.generation());
      formation_.in<Running>()->change = true;
      orders_changed_ = true;
    } else if (auto* running = formation_.in<Running>()) {
      (std::holds_alternative<KillWorkers>(action) ? running->kill : running->stop) = true;
      orders_changed_ = true;
    }
  }
  if (std::holds_alternative<Started>(event)) out().emplace_back(Changed{});
}

LoggedEvent Coordinator::with_places(LoggedEvent event) const {
  if (event.rank >= 0) event.pid = formation_.pid_of(event.rank);
  if (event.rank >= 0) event.node = formation_.node_name_of(event.rank);
  if (event.event != "spawned") return event;
  event.pids = formation_.all_pids();
  if (options_.max_nodes == 1) return event;  // its agent knows where it is
  for (int64_t rank = 0; rank < formation_.world_size(); ++rank)
    event.nodes.push_back(formation_.node_name_of(rank));
  return event;
}

void Coordinator::finish(const Finish& action) {
  LOCKSTEP_CHECK(formation_.in<Finishing>() == nullptr && formation_.in<Over>() == nullptr,
                 "ended twice: ", action.reason);
  formation_.enter(Finishing{action, now_ns_, quorum_.ends_job(roster_.count_voters())});
  orders_changed_ = true;
}

void Coordinator::step_down(std::string reason, bool succeeded) {
  formation_.enter(Over{});
  out().emplace_back(SteppedDown{std::move(reason), succeeded});
}

void Coordinator::record(std::string event, std::string reason) {
  out().emplace_back(LoggedEvent{std::move(event), formation_.generation(), formation_.world_size(),
                                 -1, std::move(reason)});
}

}  // namespace lockstep::launcher::control
