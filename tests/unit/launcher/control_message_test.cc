#include "launcher/control/message.h"

#include <gtest/gtest.h>

#include "base/hash.h"

namespace lockstep::launcher::control {
namespace {

Report full_report() {
  Report report;
  report.id = 7;
  report.name = "n7";
  report.address = "10.0.0.7:4711";
  report.sequence = 42;
  report.promised = 3;
  report.pids = {11, 12};
  WorkerExit exit;
  exit.rank = 5;
  exit.signal = 9;
  exit.agent_did = AgentDid::kToldToLetGo;
  exit.hung_s = 1.5;
  exit.log_lines = {"last words", ""};
  exit.progress.phase = Phase::kUpdate;
  report.exits = {exit};
  report.broken = "2 errors of a memory";
  report.health = {"2 errors of a memory", "it is hot"};
  report.samples.resize(2);
  report.samples[1].stopped = true;
  report.samples[1].progress.save_phase = SavePhase::kVoting;
  report.samples[1].progress.first_step = 201;
  return report;
}

Order full_order() {
  Order order;
  order.leader = 1;
  order.generation = 3;
  order.duty = Duty::kRun;
  order.first_rank = 4;
  order.count = 2;
  order.world_size = 8;
  order.nonce = "7f2a91";
  order.kill = true;
  order.standbys = {{2, "10.0.0.2:1"}, {3, "10.0.0.3:1"}};
  order.members = {1, 2, 3};
  order.barred = {"n3"};
  order.reason = "because";
  order.patience = {1, 2, 3, 4};
  return order;
}

const Message kMessages[] = {full_report(), full_order(), NotLeader{{4, "10.0.0.4:9"}},
                             StoreBytes{9, true, std::string("\0bytes", 6)}};

TEST(ControlMessage, EveryKindRoundTrips) {
  for (const Message& message : kMessages) {
    const std::string bytes = encode(message);
    const auto back = decode(bytes);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back.value().index(), message.index());
    EXPECT_EQ(encode(back.value()), bytes);
  }
  const auto decoded = decode(encode(full_report()));
  const auto& report = std::get<Report>(decoded.value());
  EXPECT_EQ(report.exits[0].log_lines, (std::vector<std::string>{"last words", ""}));
  EXPECT_EQ(report.exits[0].hung_s, 1.5);
  EXPECT_EQ(report.broken, full_report().broken);
  EXPECT_EQ(report.health, full_report().health);
  EXPECT_EQ(report.samples[1].progress.save_phase, SavePhase::kVoting);
  EXPECT_EQ(report.samples[1].progress.first_step, 201);
}

TEST(ControlMessage, AnotherVersionIsRefused) {
  std::string bytes = encode(NotLeader{});
  ++bytes[0];
  const auto refused = decode(bytes);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("version"), std::string::npos);
}

// Cut anywhere, with bytes too many, or with any byte changed: an error or another message, never
// more memory than the bytes could hold, never a crash.
TEST(ControlMessage, DamageIsNoticedOrHarmless) {
  for (const Message& message : kMessages) {
    const std::string bytes = encode(message);
    for (size_t length = 0; length < bytes.size(); ++length)
      EXPECT_FALSE(decode(bytes.substr(0, length)).ok()) << length;
    EXPECT_FALSE(decode(bytes + "x").ok());
    for (size_t at = 0; at < bytes.size(); ++at)
      for (uint64_t bit = 0; bit < 8; ++bit) {
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
        if (const auto other = decode(damaged); other.ok()) {
          EXPECT_LE(encode(other.value()).size(), bytes.size());
        }
      }
  }
}

// Numbers that no node could mean are an error of who says them, and nobody else's end.
TEST(ControlMessage, ImpossibleNumbersAreRefused) {
  const auto refused = [](auto message, const auto& change) {
    const bool sound = is_sound(Message(message)) && decode(encode(message)).ok();
    change(message);
    const auto decoded = decode(encode(message));
    return sound && !is_sound(Message(message)) && !decoded.ok() &&
           decoded.error().code == Code::kCorrupt;
  };
  const Report report = full_report();
  EXPECT_TRUE(refused(report, [](Report& r) { r.id = 0; }));
  EXPECT_TRUE(refused(report, [](Report& r) { r.promised = INT64_MAX; }));
  EXPECT_TRUE(refused(report, [](Report& r) { r.committed = -2; }));
  EXPECT_TRUE(refused(report, [](Report& r) { r.members_of = kMostGeneration + 1; }));
  EXPECT_TRUE(refused(report, [](Report& r) { r.alive = -1; }));
  EXPECT_TRUE(refused(report, [](Report& r) { r.exits_from = -1; }));
  EXPECT_TRUE(refused(report, [](Report& r) { r.stops = -1; }));
  EXPECT_TRUE(refused(report, [](Report& r) { r.alive_ns = INT64_MIN; }));
  const Order order = full_order();
  EXPECT_TRUE(refused(order, [](Order& o) { o.leader = 0; }));
  EXPECT_TRUE(refused(order, [](Order& o) { o.generation = -1; }));  // there is nothing to run
  EXPECT_TRUE(refused(order, [](Order& o) { o.generation = INT64_MAX; }));
  EXPECT_TRUE(refused(order, [](Order& o) { o.base = -2; }));
  EXPECT_TRUE(refused(order, [](Order& o) { o.count = 0; }));
  EXPECT_TRUE(refused(order, [](Order& o) { o.count = INT64_MIN; }));
  EXPECT_TRUE(refused(order, [](Order& o) { o.first_rank = 7; }));  // 7 and 8 of 8
  EXPECT_TRUE(refused(order, [](Order& o) { o.world_size = INT64_MAX; }));
  EXPECT_TRUE(refused(order, [](Order& o) { o.exits_seen = -1; }));
  EXPECT_TRUE(refused(order, [](Order& o) { o.safe_step = -2; }));
  EXPECT_TRUE(refused(order, [](Order& o) { o.restarts = -1; }));
  EXPECT_TRUE(refused(order, [](Order& o) { o.parked = -1; }));
  EXPECT_TRUE(refused(order, [](Order& o) { o.members = {1, 2, 1}; }));
  EXPECT_TRUE(refused(order, [](Order& o) { o.members = {1, 0}; }));
  EXPECT_TRUE(refused(order, [](Order& o) { o.patience.ack_ns = 0; }));
  EXPECT_TRUE(refused(order, [](Order& o) { o.patience.silence_ns = INT64_MAX; }));
}

}  // namespace
}  // namespace lockstep::launcher::control
