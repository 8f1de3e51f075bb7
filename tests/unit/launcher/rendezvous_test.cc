// Who coordinates, by the files of a folder.
#include "launcher/control/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "base/text.h"
#include "launcher/host/process.h"
#include "launcher/host/run_files.h"
#include "launcher/host/scratch_folder.h"
#include "tests/support/faulty_file_system.h"

namespace lockstep::launcher::control {
namespace {

constexpr NodeId kFirst = 11, kStandby = 12, kJoiner = 13;
constexpr Succession kBegins = {.leader = kFirst, .generation = 0};
constexpr Succession kTakesOver = {.leader = kStandby, .generation = 1, .lost = kFirst, .base = 0};
constexpr Succession kGoesOn = {.leader = kFirst, .generation = 2, .lost = kFirst, .base = 0};
constexpr Succession kBeginsAnew = {.leader = kJoiner, .generation = 5};

TEST(Succession, AGenerationIsFollowedByOne) {
  EXPECT_TRUE(after({}, kTakesOver));  // what was said is gone
  EXPECT_TRUE(after(kBegins, kTakesOver));
  EXPECT_TRUE(after(kBegins, kGoesOn));
  // The leader has gone on from there, and the standby's half does not know it; and the other way.
  const Succession goes_further = {.leader = kFirst, .generation = 3, .lost = kFirst, .base = 2};
  EXPECT_FALSE(after(goes_further, kTakesOver));
  EXPECT_FALSE(after(goes_further, kGoesOn));
  EXPECT_FALSE(after(kTakesOver, goes_further));
  EXPECT_FALSE(after(kBeginsAnew, kTakesOver));
  // It went on by a majority and need not ask.
  EXPECT_TRUE(after(kBegins, goes_further));
}

// Who followed, and was lost before a worker ran, keeps nobody from following the same one.
TEST(Succession, AMajorityOfTheSameNodesFollowsInPlaceOfAnother) {
  Succession newer = kGoesOn, older = kTakesOver;
  EXPECT_TRUE(after(kTakesOver, kGoesOn));
  EXPECT_FALSE(after(kGoesOn, kTakesOver));  // some promised the newer one
  older.tie = true;
  EXPECT_TRUE(after(older, kGoesOn));
  EXPECT_TRUE(after(older, older));
  newer.tie = true;
  EXPECT_TRUE(after(kTakesOver, newer));
  EXPECT_FALSE(after(older, newer));  // the halves may have no node in common
  // Nor when the leader itself has asked first.
  EXPECT_FALSE(after({kFirst, 0, kFirst, 0, true}, older));
  EXPECT_TRUE(after({kFirst, 0, kFirst, 0, true}, kTakesOver));
  // Who waits with a majority may always be found, and changes nothing.
  Succession waits = kTakesOver;
  waits.generation = waits.base;
  EXPECT_EQ(after(kGoesOn, waits), kGoesOn);
  EXPECT_EQ(after(kBegins, waits), kBegins);
  EXPECT_FALSE(after(kBeginsAnew, waits));
}

TEST(Succession, NobodyFollowsOnceTheJobIsOver) {
  Succession over = kBegins;
  over.over = true;
  EXPECT_FALSE(after(over, kTakesOver));
  EXPECT_FALSE(after(over, kGoesOn));
  EXPECT_FALSE(keeps(over, kBegins));
}

class Meeting : public testing::Test {
 protected:
  Rendezvous agent(FileSystem& file_system) {
    return Rendezvous::create(file_system, text("file:", folder.string()), "job", folder).value();
  }
  Rendezvous agent() { return agent(fs); }
  static net::Endpoint at(NodeId node) { return {"10.0.0.1", static_cast<uint16_t>(node)}; }
  void begin() {
    ASSERT_TRUE(first.claim(first.newest().value(), at(kFirst)).value());
    ASSERT_TRUE(first.follow(kBegins, at(kFirst)).value());
  }
  // Whether the standby was let follow: it has read what the newest file says, and before it makes
  // the next one, the others do something.
  template <typename Others>
  bool follows_late(const Succession& next, Others&& others) {
    test_support::FaultyFileSystem disk(
        fs, {.op = test_support::Op::kSync, .at_call = 1, .fault = test_support::Fault::kHold});
    Rendezvous slow = agent(disk);
    bool mine = true;
    std::thread takes_over([&] { mine = slow.follow(next, at(kStandby)).value(); });
    while (disk.calls(test_support::Op::kSync) == 0) std::this_thread::yield();
    others();
    disk.set_plan({});
    takes_over.join();
    return mine;
  }

  FileSystem& fs = posix_file_system();
  const ScratchFolder scratch = ScratchFolder::create().value();
  const std::filesystem::path folder = scratch.path();
  Rendezvous first = agent(), standby = agent(), joiner = agent();
};

TEST_F(Meeting, TheNewestNumberCoordinates) {
  const auto nobody = joiner.newest().value();
  EXPECT_EQ(nobody.number, -1);
  EXPECT_TRUE(first.claim(nobody, at(kFirst)).value());
  EXPECT_FALSE(joiner.claim(nobody, at(kJoiner)).value());
  EXPECT_EQ(joiner.newest().value().at, at(kFirst));
  EXPECT_EQ(joiner.newest().value().last, Succession{});
  EXPECT_TRUE(first.follow(kBegins, at(kFirst)).value());
  const auto begun = joiner.newest().value();
  EXPECT_EQ(begun.last, kBegins);
  EXPECT_TRUE(first.beat().value());
  EXPECT_EQ(joiner.newest().value().at, at(kFirst));
  EXPECT_EQ(joiner.newest().value().last, kBegins);
  EXPECT_NE(joiner.newest().value().words, begun.words);
  Succession tie = kTakesOver;
  tie.tie = true;
  EXPECT_TRUE(standby.follow(tie, at(kStandby)).value());
  EXPECT_EQ(joiner.newest().value().at, at(kStandby));
  EXPECT_EQ(joiner.newest().value().last, tie);
}

// One that no job counts up to has no successor: the search for one never ended.
TEST_F(Meeting, AStrangersNumberIsPassedOver) {
  begin();
  for (const char* number : {"9223372036854775807", "9223372036854775808", "281474976710656", "-1"})
    ASSERT_TRUE(publish_file(fs, folder / text("job.coordinator.", number), "words").ok());
  EXPECT_TRUE(standby.follow(kTakesOver, at(kStandby)).value());
  EXPECT_EQ(joiner.newest().value().at, at(kStandby));
}

// Who writes into the folder by mistake must neither end the job nor keep one from beginning.
TEST_F(Meeting, AStrangersWordsArePassedOver) {
  const auto at_number = [this](int64_t number) {
    return folder / text("job.coordinator.", number);
  };
  ASSERT_TRUE(publish_file(fs, at_number(1), "").ok());
  ASSERT_TRUE(fs.make_directories(at_number(2)).ok());
  ASSERT_TRUE(first.claim(first.newest().value(), at(kFirst)).value());
  EXPECT_EQ(joiner.newest().value().at, at(kFirst));
  ASSERT_TRUE(publish_file(fs, at_number(7), "10.0.0.1:80").ok());
  ASSERT_TRUE(fs.make_directories(at_number(8)).ok());
  ASSERT_TRUE(publish_file(fs, at_number(9), "neither address nor beat at all").ok());
  ASSERT_EQ(::mkfifo(at_number(10).c_str(), 0600), 0);
  EXPECT_TRUE(first.named());
  EXPECT_TRUE(first.beat().value());
  EXPECT_EQ(joiner.newest().value().at, at(kFirst));
  ASSERT_TRUE(first.follow(kBegins, at(kFirst)).value());
  EXPECT_EQ(joiner.newest().value().number, 11);
  EXPECT_EQ(joiner.newest().value().last, kBegins);
  EXPECT_TRUE(standby.follow(kTakesOver, at(kStandby)).value());
  EXPECT_FALSE(first.beat().value());
}

// Who was cut off, or stopped, when the others ended the job; and who is called to a new one.
TEST_F(Meeting, AJobThatIsOverGoesOnForNobodyAndBeginsAnewAtOnce) {
  begin();
  Succession tie = kTakesOver;
  tie.tie = true;
  ASSERT_TRUE(standby.follow(tie, at(kStandby)).value());
  EXPECT_FALSE(first.named());
  EXPECT_TRUE(standby.named());
  standby.withdraw(/*over=*/true);
  EXPECT_FALSE(standby.named());
  EXPECT_EQ(fs.list(folder).value().size(), 1u);
  EXPECT_FALSE(first.beat().value());
  EXPECT_FALSE(first.follow(kGoesOn, at(kFirst)).value());
  const auto ended = joiner.newest().value();
  EXPECT_EQ(ended.at.port, 0);
  EXPECT_TRUE(ended.last.over);
  EXPECT_TRUE(joiner.claim(ended, at(kJoiner)).value());
  EXPECT_FALSE(first.beat().value());
  EXPECT_FALSE(first.follow(kGoesOn, at(kFirst)).value());
  EXPECT_TRUE(joiner.follow(kBeginsAnew, at(kJoiner)).value());
  EXPECT_FALSE(first.beat().value());
  EXPECT_EQ(joiner.newest().value().last, kBeginsAnew);
}

// Of one that follows meanwhile and the end one comes first.
TEST_F(Meeting, AnEndAndASuccessionAtOneTimeAreNotBoth) {
  begin();
  Succession tie = kTakesOver;
  tie.tie = true;
  EXPECT_FALSE(follows_late(tie, [&] { first.withdraw(/*over=*/true); }));
  EXPECT_TRUE(joiner.newest().value().last.over);
}

// A newcomer has just claimed, for what the leader did not say in time.
TEST_F(Meeting, AClaimDoesNotHideTheEnd) {
  begin();
  ASSERT_TRUE(joiner.claim(joiner.newest().value(), at(kJoiner)).value());
  first.withdraw(/*over=*/true);
  EXPECT_TRUE(standby.newest().value().last.over);
  EXPECT_FALSE(standby.follow(kTakesOver, at(kStandby)).value());
  EXPECT_FALSE(joiner.beat().value());
  // Not where another training has begun.
  Rendezvous second = agent(), third = agent();
  ASSERT_TRUE(second.claim(second.newest().value(), at(kJoiner)).value());
  ASSERT_TRUE(second.follow(kBeginsAnew, at(kJoiner)).value());
  standby.withdraw(/*over=*/true);
  EXPECT_EQ(third.newest().value().last, kBeginsAnew);
}

// It waited for nodes, or led fewer than half of them, and has given up.
TEST_F(Meeting, WhoLeavesAndEndsNothingLeavesItToTheOthers) {
  begin();
  Succession waits = kTakesOver;
  waits.generation = waits.base;
  ASSERT_TRUE(standby.follow(waits, at(kStandby)).value());
  standby.withdraw(/*over=*/false);
  EXPECT_EQ(joiner.newest().value().at.port, 0);
  EXPECT_TRUE(first.beat().value());
  EXPECT_EQ(joiner.newest().value().at, at(kFirst));
  first.withdraw(/*over=*/false);
  EXPECT_TRUE(standby.follow(kTakesOver, at(kStandby)).value());
  EXPECT_EQ(joiner.newest().value().last, kTakesOver);
}

TEST_F(Meeting, OfOneThatBeginsAndOneThatSucceedsOneDoes) {
  begin();
  // A joiner found the coordinator dead; then a standby takes over.
  ASSERT_TRUE(joiner.claim(joiner.newest().value(), at(kJoiner)).value());
  ASSERT_TRUE(standby.follow(kTakesOver, at(kStandby)).value());
  EXPECT_FALSE(joiner.beat().value());
  EXPECT_FALSE(joiner.follow(kBeginsAnew, at(kJoiner)).value());
  // The other way round.
  Rendezvous second = agent(), third = agent();
  ASSERT_TRUE(second.claim(second.newest().value(), at(kJoiner)).value());
  ASSERT_TRUE(second.follow(kBeginsAnew, at(kJoiner)).value());
  const Succession late = {.leader = 14, .generation = 6, .lost = kStandby, .base = 1};
  EXPECT_FALSE(third.follow(late, at(14)).value());
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
  ASSERT_TRUE(standby.follow(kTakesOver, at(kStandby)).value());
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

// A standby that waits for nodes, and was wrong to believe the coordinator lost, is the newest one
// for a moment only: else a late node would begin anew once that standby is no more.
TEST_F(Meeting, WhoLeadsATrainingClaimsAgain) {
  begin();
  Succession waits = kTakesOver;
  waits.generation = waits.base;
  ASSERT_TRUE(standby.follow(waits, at(kStandby)).value());
  EXPECT_EQ(joiner.newest().value().at, at(kStandby));
  EXPECT_TRUE(first.beat().value());
  EXPECT_EQ(joiner.newest().value().at, at(kFirst));
  EXPECT_EQ(joiner.newest().value().last, kBegins);
  // Both may be right until one of them goes on.
  EXPECT_TRUE(standby.beat().value());
  EXPECT_EQ(joiner.newest().value().at, at(kStandby));
  EXPECT_TRUE(first.follow(kGoesOn, at(kFirst)).value());
  EXPECT_TRUE(standby.beat().value());
  const Succession further = {.leader = kFirst, .generation = 3, .lost = kFirst, .base = 2};
  EXPECT_TRUE(first.follow(further, at(kFirst)).value());
  EXPECT_FALSE(standby.beat().value());
  // Not once another training has begun.
  ASSERT_TRUE(joiner.claim(joiner.newest().value(), at(kJoiner)).value());
  ASSERT_TRUE(joiner.follow(kBeginsAnew, at(kJoiner)).value());
  EXPECT_FALSE(first.beat().value());
  EXPECT_EQ(first.newest().value().at, at(kJoiner));
}

// Two others make files meanwhile, and the number of the next one is free again.
TEST_F(Meeting, WhoIsSlowDecidesNothingOnWhatIsNoLongerSo) {
  begin();
  EXPECT_FALSE(follows_late(kTakesOver, [&] {
    Succession next = kGoesOn;
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(first.follow(next, at(kFirst)).value());
      next.base = next.generation++;
    }
  }));
  EXPECT_EQ(joiner.newest().value().at, at(kFirst));
  EXPECT_EQ(fs.list(folder).value().size(), 1u);
}

TEST_F(Meeting, ADiskThatIsFullDecidesNothing) {
  begin();
  test_support::FaultyFileSystem disk(fs, {.op = test_support::Op::kCreate,
                                           .at_call = 1,
                                           .fault = test_support::Fault::kNoSpace,
                                           .and_after = true});
  Rendezvous own = agent(disk);
  const auto refused = own.follow(kTakesOver, at(kStandby));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(folder.string()), std::string::npos);
  EXPECT_EQ(joiner.newest().value().last, kBegins);
  EXPECT_EQ(fs.list(folder).value().size(), 1u);
  disk.set_plan({});
  EXPECT_TRUE(own.follow(kTakesOver, at(kStandby)).value());
}

// Whoever removed the folder's files has not ended the job.
TEST_F(Meeting, WhoLeadsSaysItAgainWhenTheFilesAreGone) {
  begin();
  ASSERT_TRUE(remove_tree(fs, folder / "job.coordinator.1"));
  EXPECT_TRUE(first.beat().value());
  EXPECT_EQ(joiner.newest().value().at, at(kFirst));
  EXPECT_EQ(joiner.newest().value().last, kBegins);
}

}  // namespace
}  // namespace lockstep::launcher::control
