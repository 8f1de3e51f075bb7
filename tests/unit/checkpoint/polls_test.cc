#include "checkpoint/ballot/polls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/support/memory_ballot.h"
#include "tests/support/ranks_at_once.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::ranks_at_once;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kLong{20000};

std::string vote_of(int rank) { return text("vote of ", rank, std::string(1, '\0')); }

TEST(Polls, RankZeroGetsAllVotesInOrderAndTheOthersItsWord) {
  for (const int world_size : {1, 2, 8, 9, 17, 64, 100}) {
    MemoryBallot ballot;
    const auto outcomes = ranks_at_once(world_size, [&](int rank) -> std::string {
      Polls polls(ballot, rank, world_size, kLong);
      const auto votes = polls.vote("a", vote_of(rank));
      EXPECT_TRUE(votes.ok());
      if (rank != 0) {
        EXPECT_TRUE(votes.value().empty());
        return polls.await_outcome("a").value();
      }
      EXPECT_EQ(static_cast<int>(votes.value().size()), world_size);
      for (int r = 0; r < world_size; ++r)
        EXPECT_EQ(votes.value()[static_cast<size_t>(r)], vote_of(r));
      EXPECT_TRUE(polls.announce("a", "said").ok());
      return "said";
    });
    for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "said");
    EXPECT_EQ(ballot.size(), 1u) << "the outcome: some may still ask for it";
  }
}

TEST(Polls, TheFirstOfAGroupMayJoinItsVotes) {
  for (const int world_size : {1, 9, 20, 100}) {
    MemoryBallot ballot;
    const auto all = ranks_at_once(world_size, [&](int rank) {
      return Polls(ballot, rank, world_size, kLong)
          .vote("a", text(rank),
                [&](const Polls::Texts& group) -> Polls::Texts {
                  EXPECT_EQ(group.front(), text(rank));
                  return {text(group.front(), " to ", group.back())};
                })
          .value();
    });
    const int last = world_size - 1;
    const auto& votes = all.front();
    EXPECT_EQ(votes.front(), text("0 to ", std::min(world_size == 100 ? 15 : 7, last)));
    EXPECT_EQ(votes.size(), world_size == 1    ? 1u
                            : world_size == 9  ? 2u
                            : world_size == 20 ? 3u
                                               : 7u);
    EXPECT_TRUE(votes.back().ends_with(text(" ", last))) << votes.back();
  }
}

// A group that is not all there is not joined: whoever is silent is still named.
TEST(Polls, AGroupWithASilentRankIsNotJoined) {
  MemoryBallot ballot;
  const auto join = [](const Polls::Texts&) -> Polls::Texts { return {"joint"}; };
  for (const int rank : {1, 2, 3, 4, 5, 6, 7, 9})
    ASSERT_TRUE(Polls(ballot, rank, 11, milliseconds(0)).vote("a", "v", join).ok());
  ASSERT_TRUE(Polls(ballot, 8, 11, milliseconds(0)).vote("a", "v", join).ok());
  const auto votes = Polls(ballot, 0, 11, milliseconds(0)).vote("a", "v", join);
  ASSERT_FALSE(votes.ok());
  EXPECT_EQ(votes.error().message, "no vote on save a from rank 10");
}

TEST(Polls, AnOutcomeIsForgottenWhenAllHaveVotedLater) {
  MemoryBallot ballot;
  Polls zero(ballot, 0, 2, milliseconds(0)), one(ballot, 1, 2, milliseconds(0));
  const auto poll = [&](const std::string& attempt, bool late) {
    EXPECT_TRUE(late || one.vote(attempt, "v").ok());
    EXPECT_EQ(zero.vote(attempt, "v").ok(), !late);
    ASSERT_TRUE(zero.announce(attempt, "said").ok());
  };
  poll("a", false);
  EXPECT_EQ(ballot.size(), 1u);
  poll("b", true);  // it may still ask what came of a
  EXPECT_EQ(one.await_outcome("a").value(), "said");
  EXPECT_EQ(ballot.size(), 2u);
  for (int i = 0; i < 100; ++i) {
    poll(text("c", i), false);
    EXPECT_EQ(ballot.size(), 1u);
  }
  EXPECT_EQ(one.await_outcome("c99").value(), "said");
  EXPECT_EQ(one.await_outcome("a").error().code, Code::kTimeout);
}

// Ranks 3, 12 and 16 do not vote, and 8 and 0 wait for them.
TEST(Polls, WhoDoesNotVoteIsNamed) {
  MemoryBallot ballot;
  constexpr int kWorld = 20;
  Result<std::vector<std::string>> votes = std::vector<std::string>();
  for (int rank = kWorld; rank-- > 0;)  // the first of a group after the others
    if (rank != 3 && rank != 12 && rank != 16)
      votes = Polls(ballot, rank, kWorld, milliseconds(0)).vote("a", vote_of(rank));
  ASSERT_FALSE(votes.ok());
  EXPECT_EQ(votes.error().code, Code::kTimeout);
  EXPECT_EQ(votes.error().message,
            "no vote on save a from rank 3; rank 12; rank 16, which reports for ranks 16 to 19");
}

TEST(Polls, ARankWithoutTimeVotesForItselfAlone) {
  MemoryBallot ballot;
  for (const int rank : {1, 2, 3, 4, 5, 6, 7})
    ASSERT_TRUE(Polls(ballot, rank, 12, kLong).vote_alone("a", vote_of(rank)).ok());
  ASSERT_TRUE(Polls(ballot, 8, 12, kLong).vote_alone("a", vote_of(8)).ok());  // at once
  const auto votes = Polls(ballot, 0, 12, kLong).vote("a", vote_of(0));
  ASSERT_FALSE(votes.ok());
  EXPECT_EQ(votes.error().message, "no vote on save a from rank 9 to 11");
}

TEST(Polls, WordsThatAreNoVotesAreRefused) {
  for (const std::string words : {"", "x", "\1\0\0\0", "\0\0\0\0\377\377\377\177"}) {
    MemoryBallot ballot;
    ASSERT_TRUE(ballot.tell("save/a/1", words).ok());
    const auto votes = Polls(ballot, 0, 2, milliseconds(0)).vote("a", "v");
    ASSERT_FALSE(votes.ok());
    EXPECT_EQ(votes.error().code, Code::kCorrupt);
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
