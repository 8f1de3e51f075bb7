#include "launcher/control/job_node.h"

#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::launcher::control {

JobNode::JobNode(MemberOptions member, CoordinatorOptions coordinator, bool leads, int64_t now_ns)
    : options_(std::move(coordinator)), member_(std::move(member), leads, now_ns), now_ns_(now_ns) {
  LOCKSTEP_CHECK(options_.id == member_.id(), "node ", member_.id(), " and ", options_.id);
  if (leads) coordinator_ = std::make_unique<Coordinator>(options_, Handover{}, now_ns);
}

NodeActions JobNode::on(const NodeEvent& event, int64_t now_ns) {
  LOCKSTEP_CHECK(now_ns >= now_ns_, "time went back from ", now_ns_, " to ", now_ns);
  LOCKSTEP_CHECK(fresh_.empty() && out_.empty(), "node ", member_.id(), " is in another call");
  now_ns_ = now_ns;
  if (left_) return {};
  dispatch(event);
  route();
  if (std::holds_alternative<Tick>(event) && coordinator_) {
    coordinator_->on(now_ns_, fresh_);
    route();
  }
  if (auto lead = member_.take_lead(); lead && !left_) {
    LOCKSTEP_CHECK(coordinator_ == nullptr, "node ", member_.id(), " leads already");
    LOCKSTEP_CHECK(lead->generation == member_.committed() && !lead->members.empty(),
                   "it takes over after ", lead->generation, " and runs ", member_.committed());
    out_.emplace_back(Leads{lead->generation});
    CoordinatorOptions options = options_;
    options.timing = with(options.timing, patience_of(member_.timing()));
    coordinator_ = std::make_unique<Coordinator>(std::move(options), std::move(*lead), now_ns_);
  }
  if (coordinator_ && member_.heard() && member_.follows().id != member_.id())
    stop_leading({"another node coordinates the job"});
  LOCKSTEP_CHECK(!coordinator_ || left_ || member_.follows().id == member_.id(), "node ",
                 member_.id(), " leads and follows ", member_.follows().id);
  return std::exchange(out_, {});
}

void JobNode::dispatch(const NodeEvent& event) {
  std::visit(
      [this](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, Delivered>) {
          if (const auto* report = std::get_if<Report>(&e.message)) {
            if (coordinator_) {
              coordinator_->on(*report, now_ns_, fresh_);
            } else {
              const Peer leader = member_.heard() ? member_.follows() : Peer{};
              out_.emplace_back(Send{report->id, NotLeader{leader}});
            }
          } else if (const auto* order = std::get_if<Order>(&e.message)) {
            // [P20] Of two coordinators the one that a majority has left learns it from a report.
            const bool obeys =
                !coordinator_ || !coordinator_->has_committed() || options_.without == Rule::kP20;
            if (!obeys) return;
            LOCKSTEP_CHECK_RULE(P20, !coordinator_ || !coordinator_->has_committed(), "node ",
                                member_.id(), " obeys ", order->leader);
            member_.on(*order, now_ns_, fresh_);
          } else if (const auto* answer = std::get_if<NotLeader>(&e.message)) {
            member_.on(*answer, now_ns_, fresh_);
          }
        } else if constexpr (std::is_same_v<E, PeerGone> || std::is_same_v<E, Decided> ||
                             std::is_same_v<E, Superseded>) {
          if (coordinator_) coordinator_->on(e, now_ns_, fresh_);
        } else {
          member_.on(e, now_ns_, fresh_);
        }
      },
      event);
}

// What is for ourselves is handled now and may lead to more.
void JobNode::route() {
  for (size_t i = 0; i < fresh_.size() && !left_; ++i) {
    NodeAction action = std::move(fresh_[i]);
    auto* send = std::get_if<Send>(&action);
    if (send != nullptr && send->to == member_.id()) {
      if (const auto* order = std::get_if<Order>(&send->message)) {
        LOCKSTEP_CHECK(order->leader == member_.id(), "an order of ", order->leader);
        member_.on(*order, now_ns_, fresh_);
      } else if (coordinator_) {
        coordinator_->on(std::get<Report>(send->message), now_ns_, fresh_);
      }
      continue;
    }
    if (const auto* down = std::get_if<SteppedDown>(&action)) {
      stop_leading(*down);
      continue;
    }
    left_ = std::holds_alternative<Leave>(action);
    out_.push_back(std::move(action));
  }
  fresh_.clear();
}

void JobNode::stop_leading(SteppedDown down) {
  LOCKSTEP_CHECK(coordinator_ != nullptr, "node ", member_.id(), " does not lead");
  if (member_.follows().id == member_.id()) member_.on(down, now_ns_);
  coordinator_.reset();
  out_.emplace_back(std::move(down));
}

}  // namespace lockstep::launcher::control
