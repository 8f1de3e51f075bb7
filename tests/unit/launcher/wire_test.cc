// How agents meet at a HOST:PORT, over real sockets.
#include "launcher/control/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/text.h"
#include "launcher/host/process.h"
#include "launcher/host/run_files.h"
#include "launcher/host/scratch_folder.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/reserved_port.h"
#include "tests/unit/launcher/net_rig.h"

namespace lockstep::launcher::control {
namespace {

using testing::HasSubstr;

// One agent's part in it. Each has a rendezvous of its own, on the folder that all see.
struct Agent {
  Agent(const std::filesystem::path& folder, const std::string& endpoint, NodeId id,
        const net::Secret& secret, FileSystem& files = posix_file_system())
      : rendezvous(Rendezvous::create(files, endpoint, "job", folder).value()),
        wire(Wire::open({.secret = secret}, rendezvous, id, {"lo", "127.0.0.1"},
                        folder / text("store", id))
                 .value()) {}
  Rendezvous rendezvous;
  std::unique_ptr<Wire> wire;
};

class WireMeets : public testing::Test {
 protected:
  std::unique_ptr<Agent> agent(const std::string& endpoint, NodeId id) {
    return std::make_unique<Agent>(folder, endpoint, id, secret);
  }

  const ScratchFolder scratch = ScratchFolder::create().value();
  const std::filesystem::path folder = scratch.path();
  const net::Secret secret = net::Secret::generate();
};

TEST_F(WireMeets, OfTwoAgentsOnOneMachineOneLeadsAndTheOtherJoins) {
  const test_support::ReservedPort reserved;
  const std::string endpoint = text("127.0.0.1:", reserved.port());
  const auto first = agent(endpoint, 1);
  ASSERT_TRUE(first->wire->meet().value());
  EXPECT_EQ(first->wire->listens_at().str(), endpoint);
  std::atomic<bool> stop = false;
  std::thread serves([&] {
    while (!stop) first->wire->wait(net::kWaitMs, {});
  });
  const auto second = agent(endpoint, 2);
  const auto leads = second->wire->meet();
  stop = true;
  serves.join();
  ASSERT_TRUE(leads) << leads.error().message;
  EXPECT_FALSE(leads.value());
  EXPECT_NE(second->wire->listens_at().str(), endpoint);
}

TEST_F(WireMeets, APortThatAStrangerHasIsAnErrorThatSaysWhatToDo) {
  net::EchoServer stranger(net::Secret::generate());
  const std::string endpoint = stranger.at().str();
  const auto alone = agent(endpoint, 1);
  const auto leads = alone->wire->meet();
  ASSERT_FALSE(leads);
  EXPECT_EQ(leads.error().code, Code::kConfig);
  EXPECT_THAT(leads.error().message, HasSubstr("--rdzv-endpoint " + endpoint));
  EXPECT_THAT(leads.error().message, HasSubstr("Address already in use"));
  EXPECT_THAT(leads.error().message, HasSubstr("Free the port"));
}

// A job that has ended leaves its line, and a stranger has taken its port since.
TEST_F(WireMeets, AStrangerAtThePortOfAJobThatIsOverIsAnErrorToo) {
  net::EchoServer stranger(net::Secret::generate());
  Rendezvous before = Rendezvous::create(posix_file_system(), "", "job", folder).value();
  ASSERT_TRUE(before.claim(before.newest().value(), stranger.at()).value());
  ASSERT_TRUE(before.follow({.leader = 7, .generation = 0}, stranger.at()).value());
  before.withdraw(/*over=*/true);
  const auto leads = agent(stranger.at().str(), 1)->wire->meet();
  ASSERT_FALSE(leads);
  EXPECT_EQ(leads.error().code, Code::kConfig);
}

// A standby leads by now, elsewhere: the port is not needed.
TEST_F(WireMeets, AStrangerAtThePortDoesNotMatterWhenTheCoordinatorIsElsewhere) {
  net::EchoServer stranger(net::Secret::generate()), standby(secret);
  const auto late = agent(stranger.at().str(), 1);
  Rendezvous other = Rendezvous::create(posix_file_system(), "", "job", folder).value();
  ASSERT_TRUE(
      other.follow({.leader = 8, .generation = 1, .lost = 7, .base = 0}, standby.at()).value());
  const auto leads = late->wire->meet();
  ASSERT_TRUE(leads) << leads.error().message;
  EXPECT_FALSE(leads.value());
}

TEST_F(WireMeets, ACoordinatorThatLivesAndHasAnotherSecretIsWrongInput) {
  const auto first = std::make_unique<Agent>(folder, "", 1, net::Secret::generate());
  ASSERT_TRUE(first->wire->meet().value());
  std::atomic<bool> stop = false;
  std::thread lives([&] {
    while (!stop) {
      first->wire->wait(net::kWaitMs, {});
      EXPECT_TRUE(first->rendezvous.beat().value());
    }
  });
  const auto leads = agent("", 2)->wire->meet();
  stop = true;
  lives.join();
  ASSERT_FALSE(leads);
  EXPECT_EQ(leads.error().code, Code::kConfig);
  EXPECT_THAT(leads.error().message, HasSubstr("is alive but cannot be reached from 127.0.0.1:"));
  EXPECT_THAT(leads.error().message, HasSubstr("its secret differs from this agent's"));
}

// It need not look for anybody here: the files are not asked.
TEST_F(WireMeets, WhoseAddressItIsNotLooksForTheOneWhoseItIs) {
  test_support::FaultyFileSystem files(posix_file_system());
  const auto other =
      std::make_unique<Agent>(folder, "192.0.2.1:29400", 1, secret, files);  // RFC 5737: nobody's
  EXPECT_FALSE(net::is_own_address("192.0.2.1"));
  EXPECT_TRUE(net::is_own_address("127.0.0.1"));
  for (const char* each : {"127.0.0.1", "127.9.9.9", "::1"}) EXPECT_TRUE(net::is_loopback(each));
  for (const char* each : {"128.0.0.1", "0.0.0.0", "::", "127.1", "localhost", ""})
    EXPECT_FALSE(net::is_loopback(each)) << each;
  files.set_plan({});
  EXPECT_FALSE(other->wire->meet().value());
  EXPECT_EQ(files.calls(test_support::Op::kAny), 0);
}

}  // namespace
}  // namespace lockstep::launcher::control
