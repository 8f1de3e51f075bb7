#include "launcher/control/member.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::launcher::control {

Member::Member(MemberOptions options, bool leads, int64_t now_ns)
    : options_(std::move(options)),
      now_ns_(now_ns),
      search_(options_.id, options_.timing, options_.without, now_ns),
      ordered_ns_(now_ns) {
  LOCKSTEP_CHECK(options_.id != 0, "node ", options_.name, " has no id");
  LOCKSTEP_CHECK(now_ns >= 0, "it begins at ", now_ns);
  if (leads) search_.lead(options_.address);
}

// [P1] The newest promise binds the node.
bool Member::accepts(const Order& order) const {
  return order.generation > promised_ ||
         (order.generation == promised_ && order.leader == promised_to_) ||
         options_.without == Rule::kP1;
}

// Time never goes back.
void Member::pass_to(int64_t now_ns) {
  LOCKSTEP_CHECK(now_ns >= now_ns_, "time went back from ", now_ns_, " to ", now_ns);
  now_ns_ = now_ns;
}

void Member::on(const Order& order, int64_t now_ns, NodeActions& actions) {
  pass_to(now_ns);
  if (leave_ || !search_.is_new(order) || !accepts(order)) return;
  // [P4] An order of a coordinator that only gathers nodes does not count.
  if (order.duty != Duty::kWait || options_.without == Rule::kP4) {
    LOCKSTEP_CHECK_RULE(P4, order.duty != Duty::kWait, "an order of ", order.leader, " to wait");
    ordered_ns_ = now_ns;
  }
  if (search_.hear(order, now_ns)) news_ = true;
  adopt(order.patience);
  // The others have gone on without this node, so it may not take over what it ran last.
  if (order.base > workers_.generation() && order.duty != Duty::kRun) handover_.members.clear();
  if (order.duty != Duty::kWait) duty_ = order.duty;
  switch (order.duty) {
    case Duty::kWait: break;
    case Duty::kPark:
      // A coordinator that has missed what this node ran does not know its standbys. Any other one
      // names standbys once it has committed a generation.
      if (order.base >= workers_.generation() && !order.standbys.empty())
        search_.know_standbys(order.standbys);
      end_workers(actions);
      break;
    case Duty::kPrepare: prepare(order, actions); break;
    case Duty::kRun: run(order, actions); break;
    case Duty::kFinish:
      end_workers(actions);
      leave_ = Leave{order.exit_status, order.reason};
      leave_when_empty(actions);
      return;
  }
  if (news_) report(actions);
}

// A standby that takes over goes by what the lost coordinator went by.
void Member::adopt(const Patience& patience) {
  if (patience.silence_ns <= 0 || patience == patience_of(options_.timing)) return;
  LOCKSTEP_CHECK(patience.ack_ns > 0 && patience.reap_ns > 0, patience.ack_ns, " ",
                 patience.reap_ns);
  options_.timing = with(options_.timing, patience);
  search_.go_by(options_.timing);
}

void Member::prepare(const Order& order, NodeActions& actions) {
  if (order.generation == promised_) return;
  LOCKSTEP_CHECK_RULE(P1, order.generation > promised_, "generation ", order.generation, " after ",
                      promised_, " of ", promised_to_);
  LOCKSTEP_CHECK(order.generation > workers_.generation(), "generation ", order.generation,
                 " after ", workers_.generation());
  news_ = true;
  promised_ = order.generation;
  promised_to_ = order.leader;
  promised_elsewhere_ = promised_elsewhere_ || order.leader != handover_.lost;
  end_workers(actions);
}

void Member::run(const Order& order, NodeActions& actions) {
  const bool promised = order.generation == promised_ && order.leader == promised_to_;
  if (!promised && options_.without != Rule::kP1) return;
  if (workers_.generation() < order.generation) {
    // [P2] Workers of two generations never live side by side.
    if (workers_.alive() > 0 && options_.without != Rule::kP2) return;
    LOCKSTEP_CHECK_RULE(P1, order.generation == promised_ && order.leader == promised_to_,
                        "generation ", order.generation, " of ", order.leader, ", promised ",
                        promised_, " to ", promised_to_);
    workers_.start(order.generation, order.count);
    handover_.generation = order.generation;
    handover_.lost = order.leader;
    handover_.members.clear();
    promised_elsewhere_ = false;
    actions.emplace_back(SpawnWorkers{order});
  }
  if (workers_.generation() != order.generation) return;
  LOCKSTEP_CHECK(handover_.generation == order.generation && order.generation >= 0,
                 handover_.generation, " ", order.generation);
  run_ordered_ns_ = now_ns_;
  search_.know_standbys(order.standbys);
  handover_.safe_step = std::max(handover_.safe_step, order.safe_step);
  handover_.restarts = order.restarts;
  handover_.parked = order.parked;
  handover_.barred = order.barred;
  if (!order.members.empty()) {
    news_ = news_ || handover_.members.empty();
    handover_.members = order.members;
  }
  workers_.confirm_exits(order.exits_seen);
  if (order.kill) end_workers(actions);
  if (order.change && workers_.alive() > 0 && workers_.tell_to_change())
    actions.emplace_back(ChangeWorkers{});
  if (order.stop && workers_.alive() > 0 && workers_.tell_to_stop())
    actions.emplace_back(TermWorkers{});
}

void Member::end_workers(NodeActions& actions) {
  if (workers_.alive() > 0 && workers_.tell_to_end()) actions.emplace_back(KillWorkers{});
}

void Member::on(const NotLeader& answer, int64_t now_ns, NodeActions& actions) {
  pass_to(now_ns);
  if (search_.answered() || search_.leads()) return;
  const NodeId named = answer.follows.id;
  if (named != 0 && named != options_.id && answer.follows != search_.leader())
    follow(answer.follows, actions);
}

void Member::on(const LeaderLost& event, int64_t now_ns, NodeActions& actions) {
  pass_to(now_ns);
  if (other_secret_.empty()) other_secret_since_ns_ = now_ns;
  other_secret_ = event.other_secret;
  if (search_.leads() || !search_.lose_connection(now_ns)) return;
  actions.emplace_back(Follow{search_.leader()});
  news_ = true;
}

void Member::on(const Spawned& event, int64_t now_ns, NodeActions& actions) {
  pass_to(now_ns);
  workers_.on(event);
  report(actions);
}

void Member::on(const SpawnFailed& event, int64_t now_ns, NodeActions& actions) {
  pass_to(now_ns);
  workers_.on(event);
  leave_when_empty(actions);
  report(actions);
}

void Member::on(const WorkersExited& event, int64_t now_ns, NodeActions& actions) {
  pass_to(now_ns);
  workers_.on(event);
  leave_when_empty(actions);
  report(actions);
}

void Member::on(const StopRequested& event, int64_t now_ns, NodeActions& actions) {
  pass_to(now_ns);
  if (parked() && !search_.leads()) {  // a spare leaves, and the job goes on
    leave_ = Leave{kExitResume, "asked to stop while this node was a spare"};
    return leave_when_empty(actions);
  }
  ++stops_;
  stop_signal_ = event.signal;
  // There is no coordinator to ask.
  if (!search_.answered() && workers_.generation() < 0 && !search_.leads())
    leave_ = Leave{kExitResume, "asked to stop while looking for the coordinator"};
  leave_when_empty(actions);
  report(actions);
}

void Member::on(const HealthSeen& event, int64_t now_ns, NodeActions& actions) {
  pass_to(now_ns);
  health_ = event;
  report(actions);
}

void Member::on(const SteppedDown& event, int64_t now_ns) {
  pass_to(now_ns);
  LOCKSTEP_CHECK(search_.leads(), "node ", options_.id, " follows ", search_.leader().id);
  if (event.succeeded) handover_.members.clear();  // it may not try again
  search_.step_down(now_ns);
}

void Member::on(const Tick& event, int64_t now_ns, NodeActions& actions) {
  const Timing& t = options_.timing;
  // A node that was stopped, or had no processor, could not hear the coordinator.
  if (const int64_t gap_ns = now_ns - now_ns_; gap_ns > t.suspect_ns / 2) {
    search_.forgive_sleep(gap_ns);
    ordered_ns_ += gap_ns;
  }
  pass_to(now_ns);
  LOCKSTEP_CHECK(ordered_ns_ <= now_ns && run_ordered_ns_ <= now_ns, ordered_ns_, " ",
                 run_ordered_ns_, " ", now_ns);
  workers_.look(event.samples);
  search_.pass(now_ns);
  if (!search_.leads()) search(actions);
  if (stops_ > 0 && workers_.alive() == 0 && workers_.generation() >= 0 && !leave_ &&
      now_ns - run_ordered_ns_ >= t.stop_ns)
    leave_ = Leave{kExitResume, "asked to stop while no node coordinated the job"};
  // [P3] The others may go on without this node from now on.
  const bool late = now_ns - ordered_ns_ >= t.fence_ns;
  if (late && !workers_.spawning() && options_.without != Rule::kP3) end_workers(actions);
  LOCKSTEP_CHECK_RULE(
      P3, !late || workers_.alive() == 0 || workers_.spawning() || workers_.told_to_end(), "node ",
      options_.id, " has heard no order for ", now_ns - ordered_ns_, " ns");
  leave_when_empty(actions);
  if (now_ns - reported_ns_ >= t.report_ns || news_) report(actions);
}

void Member::search(NodeActions& actions) {
  const Timing& t = options_.timing;
  const int64_t silent_ns = search_.silent_ns(now_ns_), alone_ns = search_.alone_ns(now_ns_);
  const bool silent = silent_ns >= t.evict_ns;
  if (silent) search_.give_up_leader();
  const bool refused = !other_secret_.empty() && now_ns_ - other_secret_since_ns_ >= t.give_up_ns;
  const bool in_vain =
      silent && (refused || alone_ns >= (search_.ever_answered() ? t.give_up_ns : t.join_ns));
  if (silent && !in_vain && may_lead(silent_ns)) {
    try_to_lead(silent_ns, actions);
  } else if (in_vain && !leave_) {
    end_workers(actions);
    leave_ = leave_in_vain(alone_ns);
  } else if (!search_.answered()) {
    if (auto next = search_.next_candidate(now_ns_)) follow(std::move(*next), actions);
  }
}

Leave Member::leave_in_vain(int64_t alone_ns) const {
  const std::string none = text("found no coordinator for ", alone_ns / (1000 * kMs), " s");
  if (search_.ever_answered()) return {kExitResume, none, /*alone=*/true};
  if (other_secret_.empty()) return {kExitResume, none};
  return {kExitConfig, text(none, ": ", other_secret_,
                            "; give all agents of the job the same LOCKSTEP_SECRET, or leave it "
                            "unset and give them the same run folder")};
}

// A standby takes over in its turn, if it knows the members of the generation.
bool Member::may_lead(int64_t silent_ns) const {
  const int number = search_.standby_number();
  return number >= 0 && !handover_.members.empty() && !options_.address.empty() && !leave_ &&
         silent_ns >= options_.timing.evict_ns * (1 + number);
}

void Member::try_to_lead(int64_t silent_ns, NodeActions& actions) {
  LOCKSTEP_CHECK(!lead_ && !leave_, "node ", options_.id, " leads or leaves already");
  LOCKSTEP_CHECK(!handover_.members.empty() && handover_.generation >= 0 &&
                     handover_.generation == workers_.generation(),
                 handover_.members.size(), " nodes of generation ", handover_.generation,
                 ", it runs ", workers_.generation());
  LOCKSTEP_CHECK(search_.standby_number() >= 0 && silent_ns >= options_.timing.evict_ns, "standby ",
                 search_.standby_number(), ", silent for ", silent_ns);
  lead_ = handover_;
  lead_->silent_ms = static_cast<double>(silent_ns) * 1e-6;
  if (!workers_.samples().empty()) lead_->progress = workers_.samples()[0].progress;
  search_.try_to_lead(options_.address);
  actions.emplace_back(Follow{search_.leader()});  // it no longer hears the lost coordinator
}

void Member::follow(Peer leader, NodeActions& actions) {
  search_.follow(std::move(leader), now_ns_);
  news_ = true;
  actions.emplace_back(Follow{search_.leader()});
}

void Member::report(NodeActions& actions) {
  LOCKSTEP_CHECK_RULE(P1, workers_.generation() <= promised_, "it runs ", workers_.generation(),
                      " and has promised ", promised_);
  LOCKSTEP_CHECK(workers_.alive() == 0 || workers_.generation() >= 0, workers_.alive(), " live");
  Report report;
  report.id = options_.id;
  report.name = options_.name;
  report.address = options_.address;
  report.run = options_.run;
  report.sequence = ++sequence_;
  report.follows = search_.answered() ? search_.leader().id : 0;
  report.promised = promised_;
  report.promised_to = promised_to_;
  report.promised_elsewhere = promised_elsewhere_;
  report.members_of = handover_.members.empty() ? -1 : handover_.generation;
  report.stop_signal = stop_signal_;
  report.stops = stops_;
  report.broken = health_.broken;
  report.health = health_.lines;
  workers_.fill(report, now_ns_);
  actions.emplace_back(Send{search_.leader().id, std::move(report)});
  reported_ns_ = now_ns_;
  news_ = false;
}

void Member::leave_when_empty(NodeActions& actions) {
  if (leave_ && workers_.alive() == 0) actions.emplace_back(*leave_);
}

}  // namespace lockstep::launcher::control
