#include "checkpoint/ballot/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/text.h"
#include "checkpoint/ballot/rank_tree.h"
#include "tests/support/memory_ballot.h"
#include "tests/support/ranks_at_once.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::ranks_at_once;
using std::chrono::milliseconds;
using testing::HasSubstr;

using Settled = Result<std::optional<Error>>;
constexpr milliseconds kVerdictWait{20000};

Result<void> no_check(const Fingerprints&) { return {}; }
Verdict good(int rank) {
  return Verdict::of(rank, Fingerprints{{"param/a", 1}, {"adam_m/a", ~uint64_t{0}}});
}

TEST(Verdicts, SumsOfAllRanksReachRankZeroAndItsWordAllOthers) {
  for (const int world_size : {1, 2, 8, 9, 65, 100}) {
    MemoryBallot ballot;
    std::atomic<int> checks = 0;
    const auto all = ranks_at_once(world_size, [&](int rank) -> Settled {
      return settle(
          ballot, "p", rank, world_size, good(rank),
          [&](const Fingerprints& whole) -> Result<void> {
            ++checks;
            EXPECT_EQ(rank, 0);
            EXPECT_EQ(whole.at("param/a"), static_cast<uint64_t>(world_size));
            EXPECT_EQ(whole.at("adam_m/a"), uint64_t{0} - static_cast<uint64_t>(world_size));
            return world_size == 9 ? Result<void>(Error{Code::kCorrupt, "wrong"}) : Result<void>();
          },
          kVerdictWait);
    });
    EXPECT_EQ(checks, 1);
    for (const Settled& one : all) {
      ASSERT_TRUE(one.ok()) << one.error().message;
      ASSERT_EQ(one.value().has_value(), world_size == 9);
      const Error said = one.value().value_or(Error{Code::kCorrupt, "wrong"});
      EXPECT_EQ(said.code, Code::kCorrupt);
      EXPECT_EQ(said.message, "wrong");
    }
    EXPECT_EQ(ballot.size(), 1u) << "the outcome";
  }
}

TEST(Verdicts, TheFirstFailureInRankOrderIsEverybodysAndNothingIsChecked) {
  constexpr int kWorld = 70;
  for (const int first : {0, 3, 8, 12, 64, 68}) {
    MemoryBallot ballot;
    const auto all = ranks_at_once(kWorld, [&](int rank) -> Settled {
      const bool fails = rank == first || rank == 69;
      const Verdict mine =
          fails ? Verdict::of(rank, Error{Code::kIo, text("bad \xff ", rank)}) : good(rank);
      return settle(
          ballot, "p", rank, kWorld, mine,
          [](const Fingerprints&) -> Result<void> {
            ADD_FAILURE() << "checked";
            return {};
          },
          kVerdictWait);
    });
    for (const Settled& one : all) {
      ASSERT_TRUE(one.ok() && one.value());
      EXPECT_EQ(one.value()->code, Code::kIo);
      EXPECT_THAT(one.value()->message, HasSubstr(text("rank ", first, ": bad ")));
    }
  }
}

// A rank dies: whoever hears it says so, and all ranks that live end with its name.
TEST(Verdicts, ARankWhoseWordDoesNotComeEndsAllOfThem) {
  constexpr int kWorld = 80;
  for (const int dead : {5, 13, 64, 72, 79}) {
    class Impatient final : public Ballot {  // for the dead one alone: no clock decides
     public:
      Impatient(Ballot& behind, int dead) : behind_(behind), key_(key_of("p", dead)) {}
      Result<void> tell(const std::string& key, const std::string& words) override {
        return behind_.tell(key, words);
      }
      Result<std::string> hear(const std::string& key, milliseconds deadline) override {
        return behind_.hear(key, key == key_ ? milliseconds(0) : deadline);
      }
      void forget(const std::string& key) override { behind_.forget(key); }

     private:
      Ballot& behind_;
      const std::string key_;
    };
    MemoryBallot shared;
    Impatient ballot(shared, dead);
    const auto all = ranks_at_once(kWorld, [&](int rank) -> Settled {
      if (rank == dead) return std::optional<Error>();
      return settle(ballot, "p", rank, kWorld, good(rank), no_check, kVerdictWait);
    });
    for (int rank = 0; rank < kWorld; ++rank) {
      if (rank == dead) continue;
      const Settled& one = all[static_cast<size_t>(rank)];
      ASSERT_FALSE(one.ok()) << rank;
      EXPECT_EQ(one.error().code, Code::kTimeout);
      EXPECT_THAT(one.error().message, HasSubstr(text("from rank ", dead))) << rank;
    }
  }
}

TEST(Verdicts, ABallotThatFailsEndsTheWait) {
  class Broken final : public Ballot {
   public:
    Result<void> tell(const std::string&, const std::string&) override { return {}; }
    Result<std::string> hear(const std::string&, milliseconds) override {
      return Error{Code::kPeerLost, "the line is cut"};
    }
    void forget(const std::string&) override {}
  } broken;
  for (const int rank : {0, 1}) {
    const Settled one = settle(broken, "p", rank, 2, good(rank), no_check, kVerdictWait);
    ASSERT_FALSE(one.ok());
    EXPECT_EQ(one.error().code, Code::kPeerLost);
  }
}

TEST(Verdicts, WordsThatAreNoneOfOursAreRefused) {
  EXPECT_FALSE(parse_verdict("").ok());
  EXPECT_FALSE(parse_verdict("{}").ok());
  EXPECT_FALSE(parse_verdict("{\"sums\":{},\"failure\":7}").ok());
  Verdict verdict = good(3);
  verdict.lost = "rank 9";
  verdict.failure = Verdict::Failure{7, {Code::kCorrupt, "what"}};
  const Verdict again = parse_verdict(verdict_text(verdict)).value();
  EXPECT_EQ(again.sums, verdict.sums);
  EXPECT_EQ(again.lost, verdict.lost);
  EXPECT_EQ(again.failure->rank, 7);
  EXPECT_EQ(again.failure->error.code, Code::kCorrupt);
  EXPECT_EQ(again.failure->error.message, "what");
}

}  // namespace
}  // namespace lockstep::checkpoint
