// Who coordinates, by the files of a folder.
#include "launcher/control/rendezvous.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/text.h"
#include "launcher/process.h"
#include "launcher/run_files.h"

namespace lockstep::launcher::control {
namespace {

constexpr uint64_t kFirst = 11, kStandby = 12, kJoiner = 13;

class Meeting : public testing::Test {
 protected:
  ~Meeting() override { EXPECT_TRUE(remove_tree(fs, folder)); }
  Rendezvous agent() {
    return Rendezvous::create(fs, text("file:", folder.string()), "job", folder).value();
  }
  static net::Endpoint at(uint64_t node) { return {"10.0.0.1", static_cast<uint16_t>(node)}; }

  FileSystem& fs = posix_file_system();
  std::filesystem::path folder = make_private_directory().value();
  Rendezvous first = agent(), standby = agent(), joiner = agent();
};

TEST_F(Meeting, TheNewestNumberCoordinates) {
  EXPECT_EQ(first.newest().value().number, -1);
  EXPECT_TRUE(first.claim(0, at(kFirst)).value());
  EXPECT_FALSE(joiner.claim(0, at(kJoiner)).value());
  EXPECT_EQ(joiner.newest().value().at, at(kFirst));
  EXPECT_TRUE(first.begin(kFirst, at(kFirst)).value());
  const auto begun = joiner.newest().value();
  EXPECT_EQ(begun.began, kFirst);
  EXPECT_TRUE(first.beat().value());
  EXPECT_EQ(joiner.newest().value().at, at(kFirst));
  EXPECT_EQ(joiner.newest().value().began, kFirst);
  EXPECT_NE(joiner.newest().value().words, begun.words);
  EXPECT_TRUE(standby.succeed(kFirst, at(kStandby)).value());
  EXPECT_EQ(joiner.newest().value().at, at(kStandby));
  EXPECT_EQ(joiner.newest().value().began, 0u);
  standby.withdraw();
  EXPECT_TRUE(fs.list(folder).value().empty());
}

TEST_F(Meeting, OfOneThatBeginsAndOneThatSucceedsOneDoes) {
  ASSERT_TRUE(first.claim(0, at(kFirst)).value());
  ASSERT_TRUE(first.begin(kFirst, at(kFirst)).value());
  // A joiner found the coordinator dead; then a standby takes over.
  ASSERT_TRUE(joiner.claim(2, at(kJoiner)).value());
  ASSERT_TRUE(standby.succeed(kFirst, at(kStandby)).value());
  EXPECT_FALSE(joiner.beat().value());
  EXPECT_FALSE(joiner.begin(kJoiner, at(kJoiner)).value());
  // The other way round.
  Rendezvous second = agent(), third = agent();
  ASSERT_TRUE(second.claim(4, at(kJoiner)).value());
  ASSERT_TRUE(second.begin(kJoiner, at(kJoiner)).value());
  EXPECT_FALSE(third.succeed(kStandby, at(kStandby)).value());
  EXPECT_EQ(third.newest().value().at, at(kJoiner));
}

// Listed, and gone when it is opened: a number that is taken can still not be claimed.
TEST_F(Meeting, AFileThatGoesWhileItIsReadKeepsItsNumber) {
  const auto gone = folder / "job.coordinator.3";
  std::filesystem::create_symlink(folder / "nowhere", gone);
  const auto found = joiner.newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found.value().number, 3);
  EXPECT_EQ(found.value().at.port, 0);
  std::filesystem::remove(gone);
}

TEST_F(Meeting, AnAddressIsUsedUntilAFileNamesAnother) {
  const auto fixed = Rendezvous::create(fs, "10.0.0.9:700", "job", folder).value();
  EXPECT_EQ(fixed.newest().value().at.str(), "10.0.0.9:700");
  ASSERT_TRUE(standby.succeed(kFirst, at(kStandby)).value());
  EXPECT_EQ(fixed.newest().value().at, at(kStandby));
}

TEST_F(Meeting, ANameStandsForItsAddress) {
  const auto local = Rendezvous::create(fs, "localhost:700", "job", folder).value();
  const std::string at = local.newest().value().at.str();
  EXPECT_TRUE(at == "127.0.0.1:700" || at == "[::1]:700") << at;
  char own[256] = "";
  ASSERT_EQ(::gethostname(own, sizeof own - 1), 0);
  if (const auto named = net::resolved({own, 700}); named) {
    EXPECT_NE(named.value().host, "127.0.1.1");
    EXPECT_NE(named.value().host, own);
  }
  const std::string unknown(80, 'x');  // longer than a name may be: nobody is asked
  const auto none = Rendezvous::create(fs, unknown + ":700", "job", folder);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_NE(none.error().message.find(unknown), std::string::npos);
}

TEST_F(Meeting, ALockHasOneOwner) {
  EXPECT_TRUE(first.lock(7, kFirst).value());
  EXPECT_TRUE(first.lock(7, kFirst).value());
  EXPECT_FALSE(standby.lock(7, kStandby).value());
}

// A run that was killed leaves its lock behind; the next one with the same DIR and no id counts its
// generations from the same number.
TEST_F(Meeting, ALockBindsItsRunAloneAndGoesWithIt) {
  ASSERT_TRUE(first.claim(0, at(kFirst)).value());
  ASSERT_TRUE(first.begin(kFirst, at(kFirst)).value());
  ASSERT_TRUE(standby.lock(0, kStandby).value());
  ASSERT_TRUE(standby.succeed(kFirst, at(kStandby)).value());
  EXPECT_FALSE(first.lock(0, kFirst).value());  // still of this run
  ASSERT_TRUE(joiner.claim(3, at(kJoiner)).value());
  EXPECT_FALSE(first.lock(0, kFirst).value());  // and until another one begins
  ASSERT_TRUE(joiner.begin(kJoiner, at(kJoiner)).value());
  Rendezvous next = agent();
  EXPECT_TRUE(next.lock(0, kFirst).value());
  EXPECT_FALSE(joiner.lock(0, kJoiner).value());
  ASSERT_TRUE(next.succeed(kJoiner, at(kFirst)).value());
  EXPECT_EQ(fs.list(folder).value().size(), 3u);
  joiner.withdraw();  // it does not speak for the run any more
  EXPECT_EQ(fs.list(folder).value().size(), 3u);
  next.withdraw();
  const auto left = fs.list(folder).value();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_TRUE(left[0].starts_with("job.succeeds.")) << left[0];
}

// A standby that waits for nodes, and was wrong to believe the coordinator lost, is the newest one
// for a moment only: else a late node would begin anew once that standby is no more.
TEST_F(Meeting, WhoLeadsATrainingClaimsAgain) {
  ASSERT_TRUE(first.claim(0, at(kFirst)).value());
  ASSERT_TRUE(first.begin(kFirst, at(kFirst)).value());
  ASSERT_TRUE(standby.succeed(kFirst, at(kStandby)).value());
  EXPECT_EQ(joiner.newest().value().at, at(kStandby));
  EXPECT_TRUE(first.beat().value());
  EXPECT_EQ(joiner.newest().value().at, at(kFirst));
  // Not once another training has begun.
  ASSERT_TRUE(joiner.claim(joiner.newest().value().number + 1, at(kJoiner)).value());
  ASSERT_TRUE(joiner.begin(kJoiner, at(kJoiner)).value());
  EXPECT_FALSE(first.beat().value());
  EXPECT_EQ(first.newest().value().at, at(kJoiner));
}

}  // namespace
}  // namespace lockstep::launcher::control
