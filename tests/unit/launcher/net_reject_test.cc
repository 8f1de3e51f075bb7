// Rejected and harmless: what an outsider can do to the control plane's port, while a session of
// those who know the secret goes on beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>

#include "base/byte_codec.h"
#include "launcher/net/channel.h"
#include "tests/support/raw_socket.h"
#include "tests/unit/launcher/net_rig.h"

namespace lockstep::launcher::net {
namespace {

using test_support::RawSocket;

using test_support::kPatienceMs;

constexpr size_t kFrame = 4096;
constexpr int64_t kHandshakeMs = 1500;

struct Attack {
  const char* name;
  std::function<void(const Endpoint& server, const Secret& secret)> run;
  std::string logged;  // is in a line of the log
};

void expect_closed(RawSocket& socket) { EXPECT_TRUE(socket.wait_closed(kPatienceMs)); }

// A socket with the proof made, as by somebody who has the secret, or who sits in between.
struct Insider {
  RawSocket socket;
  Channel channel;
  Insider(const Endpoint& server, const Secret& secret)
      : socket(server.port), channel(Channel::dialer(secret, {}, kFrame)) {
    socket.send(channel.take_output());
    EXPECT_TRUE(channel.on_bytes(socket.receive(kPatienceMs)).ok());
    socket.send(channel.take_output());
    EXPECT_TRUE(channel.open());
  }
};

void wrong_secret(const Endpoint& server, const Secret&) {
  Network stranger({Secret::generate()});
  stranger.dial(server, 200);
  const auto closed = await<Closed>(stranger);
  EXPECT_TRUE(closed->other_secret) << closed->reason;
}

void wrong_proof(const Endpoint& server, const Secret& secret) {
  RawSocket socket(server.port);
  socket.send(Channel::dialer(secret, {}, kFrame).take_output());
  EXPECT_EQ(socket.receive(kPatienceMs).size(), Channel::kMaxHandshakeBytes);
  socket.send(std::string(Channel::kProofBytes, '\x5a'));
  expect_closed(socket);
}

void no_secret(const Endpoint& server, const Secret&) {
  RawSocket socket(server.port);
  socket.send("GET / HTTP/1.1\r\nHost: node7\r\n\r\n");
  EXPECT_EQ(socket.receive(kPatienceMs), "");  // not a byte of an answer
  expect_closed(socket);
}

void port_scanner(const Endpoint& server, const Secret&) {
  for (int i = 0; i < 100; ++i) RawSocket(server.port);
}

void garbage(const Endpoint& server, const Secret&) {
  for (int i = 0; i < 20; ++i) {
    RawSocket socket(server.port);
    socket.send(std::string(100'000, static_cast<char>(i * 13)));
    expect_closed(socket);
  }
}

void slow_loris(const Endpoint& server, const Secret& secret) {
  RawSocket socket(server.port);
  const std::string hello = Channel::dialer(secret, {}, kFrame).take_output();
  bool there = true;
  for (size_t i = 0; there && i < hello.size(); ++i)
    there = socket.send(hello.substr(i, 1)) && !socket.wait_closed(100);
  EXPECT_FALSE(there);
}

void oversized_frame(const Endpoint& server, const Secret& secret) {
  Insider insider(server, secret);
  ByteWriter head;
  head.number(uint32_t{0xffffffff});
  head.number(uint8_t{0});
  insider.socket.send(head.take());
  expect_closed(insider.socket);
}

void replayed_frame(const Endpoint& server, const Secret& secret) {
  Insider insider(server, secret);
  const std::string frame = insider.channel.seal(FrameKind::kPayload, "commit");
  insider.socket.send(frame + frame);
  expect_closed(insider.socket);
}

void flipped_bit(const Endpoint& server, const Secret& secret) {
  Insider insider(server, secret);
  std::string frame = insider.channel.seal(FrameKind::kPayload, "commit");
  frame.back() ^= 4;
  insider.socket.send(frame);
  expect_closed(insider.socket);
}

void flood(const Endpoint& server, const Secret& secret) {
  std::deque<RawSocket> silent;
  for (int i = 0; i < 40; ++i) silent.emplace_back(server.port);
  // While they stand there, one who knows the secret comes in.
  GoodClient late(secret, server);
  EXPECT_TRUE(late.await_echoes(10));
  for (RawSocket& each : silent) expect_closed(each);
}

const Attack kAttacks[] = {
    {"WrongSecret", wrong_secret, "it closed the connection"},
    {"WrongProof", wrong_proof, "it does not know this job's secret"},
    {"NoSecret", no_secret, "not a Lockstep agent"},
    {"PortScanner", port_scanner, "it closed the connection"},
    {"Garbage", garbage, "not a Lockstep agent"},
    {"SlowLoris", slow_loris, "it did not authenticate within 1500 ms"},
    {"OversizedFrame", oversized_frame, "frame of 4294967295 bytes is over the limit of 4096"},
    {"ReplayedFrame", replayed_frame, "the authentication code of frame 1 is wrong"},
    {"FlippedBit", flipped_bit, "the authentication code of frame 0 is wrong"},
    {"Flood", flood, "other connections were waiting"},
};

class NetReject : public testing::TestWithParam<Attack> {};

TEST_P(NetReject, LoggedAndTheOthersGoOn) {
  const Secret secret = Secret::generate();
  NetworkLimits limits;
  limits.max_frame_bytes = kFrame;
  limits.handshake_ms = kHandshakeMs;
  limits.max_unauthenticated = 8;
  EchoServer server(secret, limits);
  GoodClient good(secret, server.at());
  GetParam().run(server.at(), secret);
  EXPECT_TRUE(good.await_echoes(20));
  EXPECT_FALSE(good.disturbed());
  std::vector<std::string> lines;
  const bool logged = test_support::eventually([&] {
    lines = server.warnings();
    return std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
      return line.starts_with("rejected a connection: 127.0.0.1:") &&
             line.find(GetParam().logged) != std::string::npos;
    });
  });
  EXPECT_TRUE(logged) << testing::PrintToString(lines);
  EXPECT_LE(lines.size(), static_cast<size_t>(Network::kMaxWarnings));
  std::printf("%s: %llu rejected, %zu lines, slowest echo beside it %.1f ms\n", GetParam().name,
              static_cast<unsigned long long>(server.counts().rejected), lines.size(),
              good.slowest_ms());
}

INSTANTIATE_TEST_SUITE_P(Outsiders, NetReject, testing::ValuesIn(kAttacks),
                         [](const auto& attack) { return std::string(attack.param.name); });

}  // namespace
}  // namespace lockstep::launcher::net
