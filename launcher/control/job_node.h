// One agent's machines: it has a Member always, and a Coordinator while this node leads. What the
// two say to each other stays inside; everything else goes out as actions. Pure. Thread: one. Time:
// monotonic nanoseconds, never smaller than at the call before.
#pragma once

#include <memory>

#include "launcher/control/coordinator.h"
#include "launcher/control/member.h"

namespace lockstep::launcher::control {

class JobNode {
 public:
  // `leads`: it is the job's first coordinator.
  JobNode(MemberOptions member, CoordinatorOptions coordinator, bool leads, int64_t now_ns);

  // Ensures: after Leave nothing is asked for any more.
  NodeActions on(const NodeEvent& event, int64_t now_ns);

  const Member& member() const { return member_; }
  const Coordinator* coordinator() const { return coordinator_.get(); }  // null: another one leads

 private:
  void dispatch(const NodeEvent& event);
  void route();
  void stop_leading(SteppedDown down);

  const CoordinatorOptions options_;
  Member member_;
  std::unique_ptr<Coordinator> coordinator_;
  int64_t now_ns_;
  NodeActions fresh_, out_;
  bool left_ = false;
};

}  // namespace lockstep::launcher::control
