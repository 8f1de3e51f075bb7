#include "launcher/net/network.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <deque>

#include "base/byte_codec.h"
#include "launcher/net/channel.h"
#include "tests/support/raw_socket.h"
#include "tests/support/reserved_port.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/launcher/net_rig.h"

namespace lockstep::launcher::net {
namespace {

using test_support::RawSocket;
using test_support::ReservedPort;
using test_support::TempDir;

// Longer than a test may take: a wait that ended was ended by something else.
constexpr int64_t kAnHourMs = 3'600'000;

struct Both {
  Secret secret = Secret::generate();
  Network server{{secret}}, client{{secret}};
  Endpoint at = server.listen({"127.0.0.1", 0}).value();
  PeerId to_server = client.dial(at, kMaxTestMs);
  PeerId to_client = 0;
  // One thread, two ends.
  Both() {
    const double deadline = now_ms() + static_cast<double>(kMaxTestMs);
    bool there = false;
    while ((to_client == 0 || !there) && now_ms() < deadline) {
      for (const ConnectionEvent& event : server.wait(1))
        if (const auto* connected = std::get_if<Connected>(&event)) to_client = connected->peer;
      for (const ConnectionEvent& event : client.wait(1))
        there |= std::holds_alternative<Connected>(event);
    }
    EXPECT_TRUE(there && to_client != 0);
  }
  // Runs both until the client has an event of this kind; others of its are dropped.
  template <typename Kind>
  std::optional<Kind> next_of_client() {
    return next<Kind>(client, client_events, server);
  }
  template <typename Kind>
  std::optional<Kind> next_of_server() {
    return next<Kind>(server, server_events, client);
  }

 private:
  template <typename Kind>
  static std::optional<Kind> next(Network& network, std::deque<ConnectionEvent>& events,
                                  Network& other) {
    const double deadline = now_ms() + static_cast<double>(kMaxTestMs);
    while (now_ms() < deadline) {
      other.wait(0);
      for (ConnectionEvent& event : network.wait(1)) events.push_back(std::move(event));
      while (!events.empty()) {
        ConnectionEvent event = std::move(events.front());
        events.pop_front();
        if (Kind* found = std::get_if<Kind>(&event)) return std::move(*found);
      }
    }
    return std::nullopt;
  }
  std::deque<ConnectionEvent> client_events, server_events;
};

TEST(Network, AddressesAreThoseSeenOnTheConnection) {
  const Secret secret = Secret::generate();
  Network server({secret}), client({secret});
  auto at = server.listen({"127.0.0.1", 0});
  ASSERT_TRUE(at);
  EXPECT_NE(at->port, 0);
  client.dial(*at, kMaxTestMs);
  std::thread other([&] { EXPECT_EQ(await<Connected>(client)->remote, *at); });
  const auto connected = await<Connected>(server);
  other.join();
  EXPECT_EQ(connected->via, Via::kAccepted);
  EXPECT_EQ(connected->local, *at);
  EXPECT_EQ(connected->remote.host, "127.0.0.1");
}

TEST(Network, LargeFramesArriveWholeAndInOrder) {
  Both both;
  const std::string large(NetworkLimits{}.max_frame_bytes, 'x');
  both.client.send(both.to_server, large);
  both.client.send(both.to_server, "small");
  const auto first = both.next_of_server<Received>();
  EXPECT_TRUE(first && first->payload == large);
  const auto second = both.next_of_server<Received>();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->payload, "small");
}

TEST(Network, TheReasonOfACloseArrivesAfterWhatWasSent) {
  Both both;
  for (int i = 0; i < 100; ++i) both.server.send(both.to_client, std::string(50'000, 'x'));
  both.server.close(both.to_client, "the job is done");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(both.next_of_client<Received>());
  const auto closed = both.next_of_client<Closed>();
  ASSERT_TRUE(closed);
  EXPECT_EQ(closed->peer, both.to_server);
  EXPECT_EQ(closed->reason, both.at.str() + ": it closed the connection: the job is done");
}

TEST(Network, APeersEndIsNoticed) {
  const Secret secret = Secret::generate();
  Network server({secret});
  auto client = std::make_unique<Network>(NetworkOptions{secret});
  client->dial(server.listen({"127.0.0.1", 0}).value(), kMaxTestMs);
  std::thread other([&] { await<Connected>(*client); });
  ASSERT_TRUE(await<Connected>(server));
  other.join();
  client.reset();
  EXPECT_NE(await<Closed>(server)->reason.find("it closed the connection"), std::string::npos);
}

TEST(Network, ADialTriesUntilSomebodyListens) {
  const Secret secret = Secret::generate();
  Network client({secret});
  const ReservedPort reserved;
  const Endpoint at{"127.0.0.1", reserved.port()};
  client.dial(at, kMaxTestMs);
  EXPECT_TRUE(client.wait(100).empty());
  Network server({secret});
  ASSERT_TRUE(server.listen(at));
  std::thread other([&] { await<Connected>(client); });
  EXPECT_TRUE(await<Connected>(server));
  other.join();
}

TEST(Network, ADialGivesUpAtItsDeadlineAndSaysWhy) {
  Network client({Secret::generate()});
  const ReservedPort reserved;
  const Endpoint nobody{"127.0.0.1", reserved.port()};
  const double start_ms = now_ms();
  const PeerId peer = client.dial(nobody, 300);
  const auto closed = await<Closed>(client);
  EXPECT_EQ(closed->peer, peer);
  EXPECT_TRUE(closed->reason.starts_with(nobody.str() + ": gave up after ")) << closed->reason;
  EXPECT_NE(closed->reason.find("Connection refused"), std::string::npos) << closed->reason;
  EXPECT_GE(now_ms() - start_ms, 299);
  client.dial({std::string(80, 'x'), 1}, 200);  // longer than a name may be: nobody is asked
  EXPECT_NE(await<Closed>(client)->reason.find("cannot resolve its name"), std::string::npos);
  const PeerId dropped = client.dial(nobody, 200);
  client.close(dropped, "");
  EXPECT_TRUE(client.wait(400).empty());
}

TEST(Network, APeerThatDoesNotReadIsClosed) {
  const Secret secret = Secret::generate();
  NetworkLimits limits;
  limits.max_queue_bytes = size_t{1} << 20;
  Network server({secret, limits});
  const Endpoint at = server.listen({"127.0.0.1", 0}).value();
  RawSocket socket(at.port);
  Channel channel = Channel::dialer(secret, {}, limits.max_frame_bytes);
  socket.send(channel.take_output());
  std::string answer;
  EXPECT_TRUE(test_support::eventually([&] {
    server.wait(1);
    answer += socket.receive(0);
    return answer.size() == Channel::kMaxHandshakeBytes;
  }));
  ASSERT_TRUE(channel.on_bytes(answer).ok());
  socket.send(channel.take_output());
  const PeerId peer = await<Connected>(server)->peer;
  // More than any kernel buffers.
  for (int i = 0; i < 1000; ++i) server.send(peer, std::string(size_t{64} << 10, 'x'));
  EXPECT_NE(await<Closed>(server)->reason.find("it does not read"), std::string::npos);
}

TEST(Network, ListensOnlyAtAnAddressOfThisMachine) {
  Network network({Secret::generate()});
  for (const Endpoint& wrong : {Endpoint{"192.0.2.1", 0}, Endpoint{"node7", 0}, Endpoint{"", 0}})
    EXPECT_EQ(network.listen(wrong).error().code, Code::kConfig);
  auto at = network.listen({"127.0.0.1", 0});
  ASSERT_TRUE(at);
  auto taken = network.listen(*at);
  ASSERT_FALSE(taken);
  EXPECT_NE(taken.error().message.find(at->str()), std::string::npos);
}

TEST(Network, WorkersUseTheUnixSocket) {
  TempDir folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
  Network network({Secret::generate()});
  ASSERT_TRUE(network.listen_local(folder / "store").ok());
  RawSocket worker((folder / "store").string());
  const auto connected = await<Connected>(network);
  EXPECT_EQ(connected->via, Via::kLocal);
  worker.send(std::string("\4\0\0\0ping", 8));
  EXPECT_EQ(await<Received>(network)->payload, "ping");
  network.send(connected->peer, "pong");
  EXPECT_EQ(worker.receive(kMaxTestMs), std::string("\4\0\0\0pong", 8));
  worker.send("\xff\xff\xff\xff");
  EXPECT_NE(await<Closed>(network)->reason.find("frame of 4294967295"), std::string::npos);
}

TEST(Network, TheUnixSocketIsInAFolderOfThisUserAlone) {
  TempDir folder;
  Network network({Secret::generate()});
  ASSERT_EQ(::chmod(folder.path().c_str(), 0750), 0);
  EXPECT_EQ(network.listen_local(folder / "store").error().code, Code::kConfig);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
  auto longer = network.listen_local(folder / std::string(120, 'x'));
  ASSERT_FALSE(longer.ok());
  EXPECT_NE(longer.error().message.find("at most 107 characters"), std::string::npos);
}

TEST(Network, WaitEndsWithADescriptorOrItsTime) {
  Network network({Secret::generate()});
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const double start_ms = now_ms();
  EXPECT_TRUE(network.wait(50, {ends[0], ends[0]}).empty());
  EXPECT_GE(now_ms() - start_ms, 49);
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  for (int again = 0; again < 3; ++again)  // it stays readable
    EXPECT_TRUE(network.wait(kAnHourMs, {ends[0]}).empty());
  char byte;
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);  // and is still ours
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Network, NoSocketOutlivesAnExec) {
  const std::set<int> before = test_support::open_sockets();  // of whoever started the test
  TempDir folder;
  Both both;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
  ASSERT_TRUE(both.server.listen_local(folder / "store").ok());
  RawSocket worker((folder / "store").string());
  ASSERT_TRUE(await<Connected>(both.server));
  const PeerId other = both.client.dial({"192.0.2.1", 9}, 50);  // one on its way
  std::set<int> own = test_support::open_sockets();
  for (const int each : before) own.erase(each);
  for (const int each : own) EXPECT_TRUE(::fcntl(each, F_GETFD) & FD_CLOEXEC) << each;
  EXPECT_GE(own.size(), 6u);
  both.client.close(other, "");
}

}  // namespace
}  // namespace lockstep::launcher::net
