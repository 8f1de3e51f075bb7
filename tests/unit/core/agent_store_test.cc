// The ranks' store over an agent's socket: a real socket, the real server, ranks as threads.
#include "core/comm/agent_store.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/comm/join.h"
#include "launcher/net/network.h"
#include "launcher/net/store_server.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_dir.h"

namespace lockstep::core {
namespace {

using test_support::TempDir;
namespace net = launcher::net;

// An agent that is its own coordinator.
class Agent {
 public:
  Agent() : network_({net::Secret::generate()}) {
    EXPECT_EQ(::chmod(folder_.path().c_str(), 0700), 0);
    EXPECT_TRUE(network_.listen_local(path()).ok());
    server_.open("g1");
    thread_ = std::thread([this] { run(); });
  }
  ~Agent() {
    stop_ = true;
    thread_.join();
  }
  std::string path() const { return (folder_ / "store").string(); }
  // When a rank waits for a key.
  void begin_g2() {
    begin_ = test_support::eventually([&] { return waiting_ == 1; });
  }
  void close_all() {
    close_all_ = test_support::eventually([&] { return waiting_ == 1; });
  }

 private:
  void run() {
    while (!stop_) {
      for (const net::ConnectionEvent& event : network_.wait(5)) take(event);
      waiting_ = server_.parked_count();
      if (begin_.exchange(false)) {
        server_.open("g2");
        const net::StoreReplies told = server_.forget("g1", "generation 2 has begun");
        waiting_ = server_.parked_count();
        send(told);
      }
      if (close_all_)
        for (const net::PeerId peer : peers_) network_.close(peer, "");
    }
  }
  void take(const net::ConnectionEvent& event) {
    if (const auto* connected = std::get_if<net::Connected>(&event))
      peers_.push_back(connected->peer);
    if (const auto* received = std::get_if<net::Received>(&event))
      send(server_.on_request({0, received->peer}, received->payload));
    if (const auto* closed = std::get_if<net::Closed>(&event))
      server_.on_client_gone({0, closed->peer});
  }
  void send(const net::StoreReplies& replies) {
    for (const net::StoreReply& each : replies) network_.send(each.client.peer, each.bytes);
  }

  TempDir folder_;
  net::Network network_;
  net::StoreServer server_;
  std::vector<net::PeerId> peers_;
  std::atomic<bool> stop_ = false, begin_ = false, close_all_ = false;
  std::atomic<size_t> waiting_ = 0;
  std::thread thread_;
};

c10::intrusive_ptr<c10d::Store> store(const Agent& agent,
                                      int timeout_ms = test_support::kPatienceMs,
                                      const std::string& space = "g1") {
  return make_agent_store(agent.path(), space, std::chrono::milliseconds(timeout_ms));
}

// The words of what `call` throws.
std::string failure(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::DistStoreError& e) {
    return e.msg();
  }
  return "(nothing was thrown)";
}

TEST(AgentStore, DoesWhatAStoreDoes) {
  Agent agent;
  const auto a = store(agent), b = a->clone();
  a->set("key", "value");
  EXPECT_EQ(b->get_to_str("key"), "value");
  EXPECT_TRUE(b->check({"key"}));
  EXPECT_FALSE(b->check({"key", "other"}));
  EXPECT_EQ(a->add("n", 2), 2);
  EXPECT_EQ(b->add("n", 3), 5);
  EXPECT_EQ(a->compareSet("lock", "", "mine"), "mine");
  EXPECT_EQ(b->compareSet("lock", "", "yours"), "mine");
  EXPECT_EQ(a->getNumKeys(), 3);
  EXPECT_TRUE(a->deleteKey("key"));
  EXPECT_FALSE(a->deleteKey("key"));
}

TEST(AgentStore, WaitsOfSeveralThreadsDoNotHoldUpEachOther) {
  Agent agent;
  const auto shared = store(agent);
  std::vector<std::thread> threads;
  std::atomic<int> got = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] { got += shared->get_to_str(text("k", i)) == "v"; });
  for (int i = 3; i >= 0; --i) shared->set(text("k", i), "v");
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(got, 4);
}

TEST(AgentStore, ErrorsSayWhatAndWhy) {
  auto agent = std::make_unique<Agent>();
  const auto waiting = store(*agent, 100);
  EXPECT_EQ(failure([&] { waiting->get("none"); }),
            "store: get \"none\": the store did not answer within its timeout (timeout 0.1 s)");
  EXPECT_NE(failure([&] {
              waiting->wait({"a", "b", "c", "d"});
            }).find("(4 keys)"),
            std::string::npos);
  waiting->setTimeout(std::chrono::milliseconds(test_support::kPatienceMs));
  waiting->set("none", "1");  // the connection of the failed call is not used again
  EXPECT_EQ(waiting->get_to_str("none"), "1");
  const auto old = store(*agent, test_support::kPatienceMs, "g0");
  EXPECT_NE(failure([&] { old->set("k", "v"); }).find("generation g0 is over or has not begun"),
            std::string::npos);
  agent.reset();
  EXPECT_NE(failure([&] { waiting->set("k", "v"); }).find("the agent of this node"),
            std::string::npos);
}

TEST(AgentStore, WhoWaitsLearnsThatTheAgentOrItsGenerationIsGone) {
  constexpr int kAnHourMs = 3'600'000;  // the test has less
  Agent agent;
  const auto waiting = store(agent, kAnHourMs);
  std::string first, second;
  std::thread fenced([&] { first = failure([&] { waiting->get("never"); }); });
  agent.begin_g2();
  fenced.join();
  EXPECT_NE(first.find("generation 2 has begun"), std::string::npos) << first;
  const auto later = store(agent, kAnHourMs, "g2");
  std::thread orphan([&] { second = failure([&] { later->get("never"); }); });
  agent.close_all();
  orphan.join();
  EXPECT_NE(second.find("the agent of this node"), std::string::npos) << second;
}

TEST(AgentStore, GlooMeetsThroughIt) {
  Agent agent;
  constexpr int kRanks = 2;
  std::vector<std::string> results(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      RendezvousOptions options;
      options.rank = rank;
      options.world_size = kRanks;
      options.store = text(kAgentStore, agent.path());
      options.prefix = "g1";
      options.bind_address = "127.0.0.1";
      options.buddies = true;
      options.init_timeout_s = options.timeout_s = 60;
      auto joined = join(options);
      if (!joined) {
        results[static_cast<size_t>(rank)] = joined.error().message;
        return;
      }
      at::Tensor all = at::empty({kRanks}, at::kLong), mine = at::full({1}, rank + 5, at::kLong);
      const auto done = joined->communicator->all_gather(all, mine)->wait();
      (void)joined->store->set(text("vote", rank), "ok").ok();
      auto vote = joined->store->get(text("vote", 1 - rank), 60);
      results[static_cast<size_t>(rank)] =
          text(done.ok(), " ", all.data_ptr<int64_t>()[0], " ", all.data_ptr<int64_t>()[1], " ",
               vote ? *vote : vote.error().message);
    });
  for (std::thread& each : ranks) each.join();
  for (const std::string& each : results) EXPECT_EQ(each, "1 5 6 ok");
}

}  // namespace
}  // namespace lockstep::core
