// The way between two nodes, on the loopback.
#include "launcher/host/pair_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/support/eventually.h"
#include "tests/support/raw_socket.h"
#include "tests/support/reserved_port.h"

namespace lockstep::launcher::net {
namespace {

using test_support::RawSocket;
using testing::HasSubstr;

using test_support::kPatienceMs;

constexpr char kHere[] = "127.0.0.1";

std::unique_ptr<ProbeListener> listener() { return ProbeListener::open(kHere, "word").value(); }

// Each look at it takes a thousandth of a second.
class SteppingClock final : public Clock {
 public:
  int64_t monotonic_ns() override { return now_ns_ += 1'000'000; }
  int64_t unix_ns() override { return 0; }
  void sleep_ns(int64_t) override {}

 private:
  int64_t now_ns_ = 0;
};

TEST(PairProbe, MeasuresAWayThatIsOpen) {
  const auto peer = listener();
  for (int i = 0; i < 2; ++i) {
    SteppingClock clock;
    const auto figures = probe_pair(clock, kHere, peer->at(), "word");
    ASSERT_TRUE(figures.ok()) << figures.error().message;
    EXPECT_NEAR(figures.value().round_trip_s, 0.001, 1e-9);
    // A look before each block of 64 MiB, and one when all have come.
    EXPECT_NEAR(figures.value().bytes_per_s, (64 << 20) / 0.257, 1);
  }
}

TEST(PairProbe, AWayThatIsShutIsAnErrorThatNamesIt) {
  const test_support::ReservedPort reserved;
  const Endpoint gone{kHere, reserved.port()};
  const auto shut = probe_pair(system_clock(), kHere, gone, "word");
  ASSERT_FALSE(shut.ok());
  EXPECT_EQ(shut.error().code, Code::kPeerLost);
  EXPECT_THAT(shut.error().message, HasSubstr(gone.str() + ": Connection refused"));
  EXPECT_EQ(probe_pair(system_clock(), kHere, {"somewhere", 9}, "word").error().code,
            Code::kConfig);
}

TEST(PairProbe, WhoDoesNotKnowTheWordIsNotAnswered) {
  const auto peer = listener();
  EXPECT_FALSE(probe_pair(system_clock(), kHere, peer->at(), "fork").ok());
  RawSocket stranger(peer->at().port);
  stranger.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(stranger.receive(kPatienceMs), "");
  RawSocket silent(peer->at().port);  // holds it up for two seconds, no longer
  EXPECT_TRUE(silent.wait_closed(kPatienceMs));
  EXPECT_TRUE(probe_pair(system_clock(), kHere, peer->at(), "word").ok());
  EXPECT_EQ(ProbeListener::open(kHere, "").error().code, Code::kConfig);
}

// Byte by byte, never silent for long: the next one must not find the way shut for that.
TEST(PairProbe, WhoSpeaksSlowlyHoldsNobodyUp) {
  constexpr int kBytes = 400, kPauseMs = 100;
  const std::string word(kBytes, 'w');
  const auto peer = ProbeListener::open(kHere, word).value();
  RawSocket slow(peer->at().port);
  auto healthy = std::async(std::launch::async,
                            [&] { return probe_pair(system_clock(), kHere, peer->at(), word); });
  int sent = 0;
  while (sent < kBytes && slow.send("w") && !slow.wait_closed(kPauseMs)) ++sent;
  EXPECT_LT(sent, kPatienceMs / kPauseMs);
  const auto figures = healthy.get();
  EXPECT_TRUE(figures.ok()) << figures.error().message;
}

}  // namespace
}  // namespace lockstep::launcher::net
