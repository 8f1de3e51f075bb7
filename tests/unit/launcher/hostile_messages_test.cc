// Whatever other processes send to a job, and in whatever order: no check fails. A check is for
// what this process alone can break. What a message may not say is refused when it is decoded.
#include <gtest/gtest.h>

#include "base/hash.h"
#include "job_rig.h"

namespace lockstep::launcher::control {
namespace {

constexpr NodeId kNodes = 5, kStrangers = 3;

class Liar {
 public:
  explicit Liar(uint64_t seed) : state_(seed << 32) {}

  uint64_t below(uint64_t limit) { return mix64(++state_) % limit; }
  bool chance(uint64_t one_in) { return below(one_in) == 0; }
  NodeId node() { return 1 + below(kNodes); }

  Message message() {
    if (chance(6)) return NotLeader{{any_id(), text("a", any_id())}};
    if (chance(2)) return spoilt(report());
    return spoilt(order());
  }

 private:
  NodeId any_id() { return 1 + below(kNodes + kStrangers); }
  int64_t generation() {
    if (chance(60)) return kMostGeneration;
    return static_cast<int64_t>(below(12)) - 1;
  }
  int64_t sequence() { return chance(3) ? INT64_MAX - next_++ : INT64_MIN + next_++; }

  // Now and then something that no node could mean.
  Report spoilt(Report r) {
    switch (below(60)) {
      case 0: r.id = 0; break;
      case 1: r.promised = INT64_MAX; break;
      case 2: r.alive = -1; break;
      case 3: r.exits_from = INT32_MIN; break;
      case 4: r.alive_ns = INT64_MIN; break;
      default: break;
    }
    return r;
  }
  Order spoilt(Order o) {
    switch (below(60)) {
      case 0: o.leader = 0; break;
      case 1: o.count = 0, o.duty = Duty::kRun; break;
      case 2: o.count = INT64_MIN, o.duty = Duty::kRun; break;
      case 3: o.generation = INT64_MAX; break;
      case 4: o.members = {1, 2, 1}; break;
      case 5: o.restarts = -1; break;
      case 6: o.patience = {0, kMs, 0, 0}; break;
      default: break;
    }
    return o;
  }

  Report report() {
    Report r;
    r.id = any_id();
    r.name = text("n", r.id);
    r.address = chance(4) ? "" : text("a", r.id);
    r.sequence = chance(2) ? INT64_MAX : sequence();
    r.follows = below(kNodes + 1);
    r.promised = generation();
    r.promised_to = any_id();
    r.promised_elsewhere = chance(2);
    r.committed = chance(3) ? generation() : std::min<int64_t>(generation(), 1);
    r.members_of = generation();
    r.alive = static_cast<int32_t>(below(3));
    if (chance(2)) r.pids = {1, 2};
    if (chance(12)) r.spawn_error = "no program";
    r.exits_from = chance(3) ? INT32_MAX : static_cast<int32_t>(below(3));
    r.exits.resize(below(3));
    for (WorkerExit& exit : r.exits) {
      exit.rank = static_cast<int>(below(9)) - 2;
      exit.exit_code = chance(2) ? kExitWrongBits : kExitDone;
    }
    if (chance(8)) r.broken = "it fails";
    r.samples.resize(below(4));
    r.stops = chance(20) ? 1 : 0;
    return r;
  }

  Order order() {
    Order o;
    o.leader = any_id();
    o.sequence = sequence();
    o.generation = generation();
    o.duty = static_cast<Duty>(below(chance(20) ? 5 : 4));
    o.count = 1;
    o.first_rank = static_cast<int64_t>(below(4));
    o.world_size = o.first_rank + 1;
    o.stop = chance(8);
    o.kill = chance(8);
    o.exits_seen = static_cast<int32_t>(below(3));
    o.base = generation();
    for (uint64_t i = below(3); i > 0; --i) o.standbys.push_back({node(), "a"});
    for (NodeId id = 1; id <= kNodes + kStrangers; ++id)
      if (chance(2)) o.members.push_back(id);
    o.safe_step = generation();
    o.restarts = static_cast<int64_t>(below(200));
    o.parked = static_cast<int64_t>(below(9));
    if (chance(8)) o.patience = {0, 1 + generation() * kMs + kMs, 1, 1};
    return o;
  }

  uint64_t state_;
  int64_t next_ = 0;
};

TEST(HostileMessages, MakeNoCheckFail) {
  int64_t unsound = 0, commits = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Liar liar(seed);
    Job job(static_cast<OnNodeLoss>(liar.below(4)), /*min=*/1, /*max=*/kNodes - 1, /*spares=*/1);
    for (int i = 0; i < 150; ++i) {
      const Message message = liar.message();
      const auto decoded = decode(encode(message));
      unsound += decoded.ok() ? 0 : 1;
      if (!decoded) continue;
      job.tell(liar.node(), Delivered{decoded.value()});
      if (liar.chance(3)) job.pass_ms(40 * static_cast<int64_t>(1 + liar.below(40)));
      if (liar.chance(12)) job.tell(liar.node(), PeerGone{liar.node()});
      if (liar.chance(12)) job.tell(liar.node(), LeaderLost{});
      if (liar.chance(30)) job.tell(liar.node(), Superseded{});
    }
    commits += job.committed();
  }
  EXPECT_GT(unsound, 0);
  EXPECT_GT(commits, 2 * 200) << "the messages end the jobs at once";
}

}  // namespace
}  // namespace lockstep::launcher::control
