#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "cli/replay/replay_difference.h"
#include "cli/replay/slot_answer.h"
#include "cli/replay/step_tail.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using test_support::TempDir;
using testing::HasSubstr;

StepRecord sound(int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 1;
  record.grad_norm = 0.5;
  record.weights = {"a", "b", "c"};
  record.gradients = {"d", "e", "f"};
  return record;
}

struct Runs {
  const std::vector<std::string> units{"embedding", "layers.0", "head"};
  Steps logged, replayed;
  Runs() {
    for (int64_t step = 1; step <= 6; ++step) logged[step] = sound(step);
    replayed = logged;
  }
  StepRecord& now(int64_t step) { return replayed.at(step); }
  std::string difference(int64_t from = 2, int64_t to = 5) const {
    return first_difference(logged, replayed, units, {from, from, to}).value().value_or("equal");
  }
};

TEST(ReplayDifference, EqualStepsAreEqual) {
  Runs runs;
  runs.now(1).loss = runs.now(6).loss = 7;  // not asked for
  EXPECT_EQ(runs.difference(), "equal");
}

TEST(ReplayDifference, TheFirstStepIsNamed) {
  Runs runs;
  runs.now(5).loss = 512;
  runs.now(4).gradients[1] = "x";
  EXPECT_THAT(runs.difference(), HasSubstr("step 4: the gradients of 1 of 3 units (layers.0) "));
}

TEST(ReplayDifference, WeightsComeBeforeTheirGradients) {
  Runs runs;
  runs.now(3).loss = 7;
  runs.now(3).weights = {"a", "b", "x"};
  runs.now(3).gradients = {"x", "y", "z"};
  EXPECT_THAT(runs.difference(), HasSubstr("step 3: the weights of 1 of 3 units (head) differ, and "
                                           "step 2 had equal weights and gradients"));
  EXPECT_THAT(runs.difference(3), HasSubstr("other weights than its checkpoint"));
}

TEST(ReplayDifference, WeightsOfAStepAmongOthersCameByTheOneBefore) {
  Runs runs;
  runs.now(4).weights = {"x", "b", "c"};
  const auto difference = first_difference(runs.logged, runs.replayed, runs.units, {2, 4, 6});
  EXPECT_THAT(difference.value().value(), HasSubstr("the update of step 3 was wrong"));
}

TEST(ReplayDifference, WithoutDigestsLossAndNormDecide) {
  Runs runs;
  for (auto& [step, each] : runs.logged) each.weights = each.gradients = {};
  EXPECT_EQ(runs.difference(), "equal");
  runs.now(3).grad_norm = 8;
  EXPECT_THAT(runs.difference(), HasSubstr("step 3 differs: loss 0x1p+0 was logged"));
  EXPECT_THAT(runs.difference(), HasSubstr("no unit can be named"));
}

TEST(ReplayDifference, AStepThatIsNotThereIsAnError) {
  Runs runs;
  runs.logged.erase(4);
  const auto difference = first_difference(runs.logged, runs.replayed, runs.units, {2, 2, 5});
  ASSERT_FALSE(difference.ok());
  EXPECT_EQ(difference.error().code, Code::kConfig);
  EXPECT_THAT(difference.error().message, HasSubstr("the run has no line for step 4"));
}

StepRecord answered(int64_t step) {
  StepRecord record = sound(step);
  record.slot = {3, "0x1.8p+1", {{"embedding", "aa"}, {"head", "bb"}}, true, {}, {}, ""};
  return record;
}

class SlotAnswerTest : public testing::Test {
 protected:
  SlotAnswerTest() {
    config_.training.slots = 8;
    logged_.world_size = 3;
  }
  std::string line(const StepRecord& replayed) const {
    return slot_line(replayed, logged_, config_).value();
  }
  Config config_;
  StepRecord logged_;
};

TEST_F(SlotAnswerTest, ALineSaysStepSlotRankLossAndOneDigest) {
  const std::string first = line(answered(7));
  EXPECT_THAT(first, testing::MatchesRegex("step 7, slot 3, which rank 0 of 3 had: loss 0x1.8p.1, "
                                           "gradients [0-9a-f]{16} of 2 units"));
  StepRecord other = answered(7);
  other.slot.digests["head"] = "bc";
  EXPECT_NE(line(other), first);
}

TEST_F(SlotAnswerTest, TheRankIsThatOfTheMapWhereTheLogTells) {
  EXPECT_EQ(rank_of_slot(config_, 3, 4), 1);
  config_.parallelism.slot_map = SlotMapKind::kBlock;
  EXPECT_EQ(rank_of_slot(config_, 4, 3), 1);
  config_.parallelism.slot_map = SlotMapKind::kGroupBlock;  // its groups go by nodes
  EXPECT_EQ(rank_of_slot(config_, 4, 3), std::nullopt);
  EXPECT_EQ(rank_of_slot(config_, 1, 3), 0);
  EXPECT_EQ(rank_of_slot(config_, 0, 3), std::nullopt);
  EXPECT_EQ(rank_of_slot(config_, 1, 8), std::nullopt);
}

TEST_F(SlotAnswerTest, AStepWithoutAnAnswerIsAnError) {
  const auto none = slot_line(sound(7), logged_, config_);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("no slot by itself in step 7"));
}

TEST_F(SlotAnswerTest, TheFirstStepInWhichRanksDisagreeIsNamed) {
  Steps steps{{6, answered(6)}, {7, answered(7)}, {8, answered(8)}};
  EXPECT_EQ(slot_disagreement(steps), "");
  steps.at(7).slot.same = steps.at(8).slot.same = false;
  steps.at(7).slot.wrong = {1};
  steps.at(7).slot.difference = "slot 3: rank 1: the loss";
  EXPECT_EQ(slot_disagreement(steps),
            "step 7: the answers of this machine differ, and rank 1 is wrong: slot 3: rank 1: the "
            "loss");
  steps.at(7).slot.wrong = {};
  steps.at(7).slot.undecided = {0, 1};
  EXPECT_THAT(slot_disagreement(steps), HasSubstr("nothing tells which of ranks 0, 1 is right"));
}

TEST_F(SlotAnswerTest, ItIsReadFromTheLog) {
  auto log = parse_metrics_jsonl(
      R"({"step":1,"loss":1,"audit":{"same":false,"slot":2,"loss_hex":"0x1p+0",)"
      R"("digests":{"head":"0f"},"wrong":[1],"undecided":[],"difference":"x"}})"
      "\n"
      R"({"step":2,"loss":1,"audit":{"same":true,"rounds":1}})"
      "\n",
      "log");
  ASSERT_TRUE(log.ok());
  const SlotRecord& read = log->steps[0].slot;
  EXPECT_EQ(read.slot, 2);
  EXPECT_EQ(read.loss_hex, "0x1p+0");
  EXPECT_EQ(read.digests.at("head"), "0f");
  EXPECT_FALSE(read.same);
  EXPECT_EQ(read.wrong, std::vector<int64_t>{1});
  EXPECT_EQ(read.difference, "x");
  EXPECT_EQ(log->steps[1].slot.slot, -1);
}

std::string line(int64_t step, double loss) {
  return text("{\"step\":", step, ",\"loss\":", loss, "}\n");
}

class StepTailTest : public testing::Test {
 protected:
  Result<void> logs(const std::string& more) {
    log_ += more;
    EXPECT_TRUE(publish_file(posix_file_system(), folder_ / "metrics.jsonl", log_).ok());
    return tail_.read();
  }
  TempDir folder_;
  StepTail tail_{posix_file_system(), folder_ / "metrics.jsonl"};
  std::string log_;
};

TEST_F(StepTailTest, GivesWhatCameSince) {
  ASSERT_TRUE(tail_.read().ok());  // there is no log yet
  EXPECT_EQ(tail_.last_step(), 0);
  ASSERT_TRUE(logs(line(1, 4) + line(2, 3) + "{\"step\":3,").ok());  // it is still being written
  EXPECT_EQ(tail_.last_step(), 2);
  ASSERT_TRUE(logs("\"loss\":2}\n").ok());
  EXPECT_EQ(tail_.last_step(), 3);
  tail_.forget(2);
  EXPECT_EQ(tail_.steps().size(), 1u);
  EXPECT_EQ(tail_.steps().at(3).loss, 2);
  EXPECT_EQ(tail_.last_step(), 3);
}

TEST_F(StepTailTest, OfAStepThatIsDoneAgainTheLastLineCounts) {
  ASSERT_TRUE(logs(line(1, 4) + line(2, 3) + line(3, 2)).ok());
  ASSERT_TRUE(logs(line(2, 3.5)).ok());
  EXPECT_EQ(tail_.steps().at(2).loss, 3.5);
  EXPECT_EQ(tail_.last_step(), 3);
}

TEST_F(StepTailTest, ALineThatIsNoneNamesTheFile) {
  const auto read = logs("{\"step\":1}\n");
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("metrics.jsonl:1: it has no \"loss\""));
}

}  // namespace
}  // namespace lockstep::cli
