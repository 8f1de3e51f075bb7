#include "launcher/control/member.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::launcher::control {

Member::Member(MemberOptions options, bool leads, int64_t now_ns)
    : options_(std::move(options)),
      now_ns_(now_ns),
      heard_ns_(now_ns),
      tried_ns_(now_ns - options_.timing.try_ns),
      ruled_ns_(now_ns),
      found_ns_(now_ns) {
  if (leads) leader_ = {options_.id, options_.address};
}

bool Member::accepts(const Order& order) const {
  if (order.leader == order_from_ && order.sequence <= order_sequence_) return false;
  return order.generation > promised_ ||
         (order.generation == promised_ && order.leader == promised_to_);
}

void Member::on(const Order& order, int64_t now_ns, Actions& actions) {
  now_ns_ = now_ns;
  if (leave_ || !accepts(order)) return;
  order_from_ = order.leader;
  order_sequence_ = order.sequence;
  heard_ns_ = now_ns;
  if (order.duty != Duty::kWait) ruled_ns_ = now_ns;
  if (order.leader != options_.id || order.duty == Duty::kRun) trying_ = false;
  // Another one than we asked leads: it has been told of us by nobody, so we go to it.
  if (order.leader != leader_.id) leader_.id = order.leader;
  news_ = news_ || !heard_;
  heard_ = true;
  // The others have gone on without us: what we ran last is not for us to succeed any more.
  if (order.base > committed_ && order.duty != Duty::kRun) roll_of_ = -1;
  if (order.duty != Duty::kWait) parked_here_ = order.duty == Duty::kPark;
  switch (order.duty) {
    case Duty::kWait: break;
    case Duty::kPark:
      // Not of one that has missed what we ran; and it has some only once it rules.
      if (order.base >= committed_ && !order.standbys.empty()) standbys_ = order.standbys;
      if (alive_ > 0) kill(actions);
      break;
    case Duty::kPrepare: prepare(order, actions); break;
    case Duty::kRun: run(order, actions); break;
    case Duty::kFinish:
      if (alive_ > 0) kill(actions);
      leave_ = Leave{order.exit_status, order.reason};
      leave_when_empty(actions);
      return;
  }
  if (news_) report(actions);
}

void Member::prepare(const Order& order, Actions& actions) {
  if (order.generation == promised_) return;
  news_ = true;
  promised_ = order.generation;
  promised_to_ = order.leader;
  strayed_ = strayed_ || order.leader != committed_by_;
  if (alive_ > 0) kill(actions);
}

void Member::run(const Order& order, Actions& actions) {
  if (order.generation != promised_ || order.leader != promised_to_) return;
  if (committed_ < order.generation) {
    if (alive_ > 0) return;  // not before what we promised to kill is buried
    committed_ = order.generation;
    committed_by_ = order.leader;
    strayed_ = false;
    alive_ = order.count;
    spawning_ = true;
    killed_ = termed_ = false;
    pids_.clear();
    spawn_error_.clear();
    exits_.clear();
    exits_confirmed_ = 0;
    samples_.clear();
    actions.emplace_back(SpawnWorkers{order});
  }
  if (committed_ != order.generation) return;
  ran_ns_ = now_ns_;
  standbys_ = order.standbys;
  safe_step_ = std::max(safe_step_, order.safe_step);
  restarts_ = order.restarts;
  parked_ = order.parked;
  if (!order.roll.empty()) {
    news_ = news_ || roll_of_ != order.generation;
    roll_ = order.roll;
    roll_of_ = order.generation;
  }
  exits_confirmed_ = std::clamp<size_t>(static_cast<size_t>(std::max(order.exits_seen, 0)),
                                        exits_confirmed_, exits_.size());
  if (alive_ > 0 && order.kill) kill(actions);
  if (alive_ > 0 && order.stop && !std::exchange(termed_, true))
    actions.emplace_back(TermWorkers{});
}

void Member::kill(Actions& actions) {
  if (!std::exchange(killed_, true)) actions.emplace_back(KillWorkers{});
}

void Member::on(const NotLeader& answer, int64_t now_ns, Actions& actions) {
  now_ns_ = now_ns;
  if (heard_ || leader_.id == options_.id) return;
  if (answer.follows.id != 0 && answer.follows.id != options_.id && answer.follows != leader_)
    follow(answer.follows, actions);
}

// A connection that broke may be a coordinator that died: not to be waited for as long as for a
// silent one.
void Member::on(const LeaderLost&, int64_t now_ns, Actions& actions) {
  now_ns_ = now_ns;
  if (leader_.id == options_.id) return;
  const Timing& t = options_.timing;
  if (std::exchange(heard_, false)) {
    heard_ns_ = std::min(heard_ns_, now_ns - (t.evict_ns - t.try_ns));
    actions.emplace_back(Follow{leader_});
    tried_ns_ = now_ns;
    news_ = true;
  } else {
    tried_ns_ = std::min(tried_ns_, now_ns - t.try_ns);
  }
}

void Member::on(const Spawned& event, int64_t now_ns, Actions& actions) {
  now_ns_ = now_ns;
  spawning_ = false;
  pids_ = event.pids;
  report(actions);
}

void Member::on(const SpawnFailed& event, int64_t now_ns, Actions& actions) {
  now_ns_ = now_ns;
  spawning_ = false;
  spawn_error_ = event.message;
  alive_ = 0;
  leave_when_empty(actions);
  report(actions);
}

void Member::on(const WorkersExited& event, int64_t now_ns, Actions& actions) {
  now_ns_ = now_ns;
  alive_ -= static_cast<int64_t>(event.exits.size());
  LOCKSTEP_CHECK(alive_ >= 0, "more workers have ended than were started");
  if (exits_.size() == exits_confirmed_) exits_alive_ns_ = event.alive_ns;
  exits_.insert(exits_.end(), event.exits.begin(), event.exits.end());
  leave_when_empty(actions);
  report(actions);
}

void Member::on(const StopRequested& event, int64_t now_ns, Actions& actions) {
  now_ns_ = now_ns;
  if (parked_here_ && leader_.id != options_.id) {  // that is a spare's own affair
    leave_ = Leave{kExitResume, "asked to stop, as a spare"};
    return leave_when_empty(actions);
  }
  ++stops_;
  stop_signal_ = event.signal;
  // Nobody else is there to ask.
  if (!heard_ && committed_ < 0 && leader_.id != options_.id)
    leave_ = Leave{kExitResume, "asked to stop while looking for the coordinator"};
  leave_when_empty(actions);
  report(actions);
}

void Member::on(const SteppedDown& event, int64_t now_ns) {
  now_ns_ = now_ns;
  if (event.succeeded) roll_of_ = -1;  // nor may it try again
  leader_ = {};
  heard_ = false;
  heard_ns_ = tried_ns_ = now_ns;
}

void Member::on(const Tick& event, int64_t now_ns, Actions& actions) {
  const Timing& t = options_.timing;
  // Who was stopped, or had no processor, could not hear.
  if (const int64_t gap_ns = now_ns - now_ns_; gap_ns > t.suspect_ns / 2)
    heard_ns_ += gap_ns, ruled_ns_ += gap_ns, found_ns_ += gap_ns;
  now_ns_ = now_ns;
  samples_ = event.samples;
  const int64_t silent_ns = now_ns - heard_ns_;
  const bool leads = leader_.id == options_.id;
  if (leads) heard_ns_ = now_ns;
  if (!trying_) found_ns_ = heard_ns_;
  if (!leads && silent_ns >= t.evict_ns) {
    heard_ = false;
    const int number = standby_number();
    const int64_t alone_ns = now_ns - found_ns_;
    const bool in_vain = alone_ns >= (order_from_ == 0 ? t.join_ns : t.give_up_ns);
    if (number >= 0 && silent_ns >= t.evict_ns * (1 + number) && !in_vain) {
      trying_ = true;
      lead_ = Inheritance{committed_,
                          roll_,
                          committed_by_,
                          static_cast<double>(silent_ns) * 1e-6,
                          samples_.empty() ? Progress{} : samples_[0].progress,
                          safe_step_,
                          restarts_,
                          parked_};
      leader_ = {options_.id, options_.address};
      actions.emplace_back(Follow{leader_});  // it hears the lost one no more
    } else if (in_vain && !leave_) {
      if (alive_ > 0) kill(actions);
      leave_ = Leave{kExitResume, text("no coordinator for ", alone_ns / (1000 * kMs), " s"),
                     order_from_ != 0};
    } else if (now_ns - tried_ns_ >= t.try_ns) {
      look_further(actions);
    }
  } else if (!leads && !heard_ && now_ns - tried_ns_ >= t.try_ns) {
    look_further(actions);
  }
  if (stops_ > 0 && alive_ == 0 && committed_ >= 0 && !leave_ && now_ns - ran_ns_ >= t.stop_ns)
    leave_ = Leave{kExitResume, "asked to stop, and nobody leads"};
  if (now_ns - ruled_ns_ >= t.fence_ns && alive_ > 0 && !spawning_) kill(actions);
  leave_when_empty(actions);
  if (now_ns - reported_ns_ >= t.report_ns || news_) report(actions);
}

// -1: may not take over.
int Member::standby_number() const {
  if (roll_of_ < 0 || roll_of_ != committed_ || options_.address.empty() || leave_) return -1;
  for (size_t i = 0; i < standbys_.size(); ++i)
    if (standbys_[i].id == options_.id) return static_cast<int>(i);
  return -1;
}

// The standbys in turn, then whoever the rendezvous names.
void Member::look_further(Actions& actions) {
  const size_t index = candidate_++ % (standbys_.size() + 1);
  if (index == standbys_.size()) {
    follow({}, actions);
  } else if (standbys_[index].id != options_.id) {
    follow(standbys_[index], actions);
  }
}

void Member::follow(Peer leader, Actions& actions) {
  leader_ = std::move(leader);
  tried_ns_ = now_ns_;
  news_ = true;
  actions.emplace_back(Follow{leader_});
}

void Member::report(Actions& actions) {
  Report report;
  report.id = options_.id;
  report.name = options_.name;
  report.address = options_.address;
  report.run = options_.run;
  report.sequence = ++sequence_;
  report.follows = heard_ ? order_from_ : 0;
  report.promised = promised_;
  report.promised_to = promised_to_;
  report.strayed = strayed_;
  report.committed = committed_;
  report.roll_of = roll_of_;
  report.alive = static_cast<int32_t>(alive_);
  report.pids = pids_;
  report.spawn_error = spawn_error_;
  report.exits_from = static_cast<int32_t>(exits_confirmed_);
  report.exits.assign(exits_.begin() + static_cast<std::ptrdiff_t>(exits_confirmed_), exits_.end());
  report.samples = samples_;
  report.stop_signal = stop_signal_;
  report.stops = stops_;
  report.alive_ns = now_ns_ - exits_alive_ns_;
  actions.emplace_back(Send{leader_.id, std::move(report)});
  reported_ns_ = now_ns_;
  news_ = false;
}

void Member::leave_when_empty(Actions& actions) {
  if (leave_ && alive_ == 0) actions.emplace_back(*leave_);
}

}  // namespace lockstep::launcher::control
