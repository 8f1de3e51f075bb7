// An order to a thousand nodes, and their answers. The times are printed and judge nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/launcher/net_rig.h"

namespace lockstep::launcher::net {
namespace {

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

// Every client answers every broadcast; the last answer counts.
TEST(NetScale, AThousandPeersAnswerABroadcast) {
  constexpr size_t kPeers = 1000;
  constexpr int kRounds = 30;
  const Secret secret = Secret::generate();
  NetworkOptions options{secret};
  options.limits.handshake_ms = kMaxTestMs;  // both ends share this machine's cores with others
  Network server(options);
  const Endpoint at = server.listen({"127.0.0.1", 0}).value();
  std::atomic<bool> stop = false;
  const double start_ms = now_ms();
  std::thread clients([&] {
    Network network(options);
    for (size_t i = 0; i < kPeers; ++i) network.dial(at, kMaxTestMs);
    while (!stop)
      for (const ConnectionEvent& event : network.wait(kWaitMs))
        if (const auto* received = std::get_if<Received>(&event))
          network.send(received->peer, "ready " + received->payload.substr(0, 8));
  });
  std::vector<PeerId> peers;
  while (peers.size() < kPeers && now_ms() - start_ms < kMaxTestMs)
    for (const ConnectionEvent& event : server.wait(kWaitMs))
      if (const auto* connected = std::get_if<Connected>(&event)) peers.push_back(connected->peer);
  EXPECT_EQ(peers.size(), kPeers);
  const double joined_ms = now_ms() - start_ms;
  const std::string order(sizeof(uint64_t) * kPeers, 'n');  // who is in, for each to know
  std::vector<double> rounds_ms;
  for (int round = 0; round < kRounds && peers.size() == kPeers; ++round) {
    const double sent_ms = now_ms();
    for (const PeerId peer : peers) server.send(peer, order);
    size_t answers = 0;
    while (answers < kPeers && now_ms() - sent_ms < static_cast<double>(kMaxTestMs))
      for (const ConnectionEvent& event : server.wait(kWaitMs))
        answers += std::holds_alternative<Received>(event);
    ASSERT_EQ(answers, kPeers) << "round " << round;
    rounds_ms.push_back(now_ms() - sent_ms);
  }
  stop = true;
  clients.join();
  std::printf(
      "%zu peers joined in %.0f ms; broadcast of %zu bytes to all answers: median %.1f ms, "
      "p99 %.1f ms\n",
      kPeers, joined_ms, order.size(), percentile(rounds_ms, 0.5), percentile(rounds_ms, 0.99));
}

}  // namespace
}  // namespace lockstep::launcher::net
