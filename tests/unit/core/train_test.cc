// Small parts of core/train and core/comm that need no second rank.
#include <gtest/gtest.h>

#include "base/json.h"
#include "core/comm/join.h"
#include "core/comm/wire_bytes.h"
#include "core/train/memory_stats.h"
#include "core/train/resume.h"
#include "core/train/same_run.h"
#include "core/train/training_step.h"
#include "hf/configured_model.h"

namespace lockstep::core {
namespace {

TEST(TrainerState, KeepsItsSkipListAndReadsStatesWithoutOne) {
  TrainerState state;
  state.step = 7;
  state.slots = 4;
  state.skipped_steps = 2;
  state.skip_list = {3, 6};
  state.identity = {"a=b"};
  const auto back = TrainerState::from_json(state.to_json());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value().skip_list, state.skip_list);
  EXPECT_EQ(back.value().skipped_steps, 2);
  auto older = nlohmann::json::parse(state.to_json());
  older.erase("skip_list");
  const auto read = TrainerState::from_json(older.dump());
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read.value().skip_list.empty());
}

TEST(TrainerState, KeepsWhatItsValidationsSaid) {
  TrainerState state;
  state.slots = 4;
  EXPECT_EQ(state.to_json().find("validations"), std::string::npos);
  EXPECT_EQ(TrainerState::from_json(state.to_json()).value().validations.step, -1);
  state.validations.add(10, 0.1 + 0.2);
  state.validations.add(20, std::nan(""));
  const Validations back = TrainerState::from_json(state.to_json()).value().validations;
  EXPECT_EQ(back.step, 20);
  EXPECT_TRUE(std::isnan(back.loss));
  EXPECT_EQ(back.best_step, 10);
  EXPECT_EQ(back.best_loss, 0.1 + 0.2) << "to the bit";
  EXPECT_EQ(back.without_gain, 1);
}

TEST(TrainerState, KeepsTheStretchesOfItsData) {
  TrainerState state;
  state.step = 7;
  state.slots = 4;
  state.identity = {"data.manifest=5*aa,3*bb", "training.local_batch_size=2",
                    "training.seq_len=64"};
  // One that never changed follows from the identity, and is not written.
  EXPECT_EQ(state.to_json().find("\"data\""), std::string::npos);
  const auto one = TrainerState::from_json(state.to_json());
  ASSERT_TRUE(one.ok());
  ASSERT_EQ(one.value().stretches.size(), 1u);
  EXPECT_EQ(one.value().stretches[0].samples_per_step, 8);
  EXPECT_EQ(one.value().stretches[0].seq_len, 64);
  EXPECT_EQ(one.value().stretches[0].sources, "5*aa,3*bb");
  state.stretches = {{0, 8, 128, "cc"}, {5, 8, 64, "5*aa,3*bb"}};
  const auto two = TrainerState::from_json(state.to_json());
  ASSERT_TRUE(two.ok());
  ASSERT_EQ(two.value().stretches.size(), 2u);
  EXPECT_EQ(two.value().stretches[0].sources, "cc");
  EXPECT_EQ(two.value().stretches[1].first_step, 5);
  state.identity = {"a=b"};
  state.stretches.clear();
  EXPECT_TRUE(TrainerState::from_json(state.to_json()).value().stretches.empty());
}

TEST(TrainerState, AFieldOfAnotherTypeOrOutOfRangeIsDamageAndNamed) {
  TrainerState state;
  state.step = 7;
  state.slots = 4;
  state.identity = {"a=b"};
  state.audited_step = 6;
  state.audit_found = true;
  state.validations.add(6, 0.5);
  state.stretches = {{0, 8, 128, "cc"}, {5, 8, 64, "5*aa,3*bb", {3, 4}}};
  const auto whole = nlohmann::json::parse(state.to_json());
  ASSERT_TRUE(TrainerState::from_json(whole.dump()).ok());
  auto stopped = whole;
  stopped["audited_step"] = 8;  // the step after, which was audited and whose loss was not finite
  ASSERT_TRUE(TrainerState::from_json(stopped.dump()).ok());
  struct Case {
    const char *field, *path, *value;
  };
  for (const Case& c : {Case{"step", "/step", "-1"},
                        {"step", "/step", "7.5"},
                        {"step", "/step", "18446744073709551615"},
                        {"step", "/step", "true"},
                        {"slots", "/slots", "0"},
                        {"tokens", "/tokens", "\"x\""},
                        {"skipped_steps", "/skipped_steps", "8"},
                        {"skip_list", "/skip_list", "[\"x\"]"},
                        {"skip_list", "/skip_list", "[-1]"},
                        {"skip_list", "/skip_list", "{}"},
                        {"identity", "/identity", "5"},
                        {"identity", "/identity", "[5]"},
                        {"audited_step", "/audited_step", "9"},
                        {"audit_found", "/audit_found", "1"},
                        {"validations", "/validations", "[]"},
                        {"loss", "/validations/loss", "[]"},
                        {"without_gain", "/validations/without_gain", "null"},
                        {"data", "/data", "{}"},
                        {"data", "/data/0", "[1, 2]"},
                        {"data", "/data/1/0", "8"},
                        {"data", "/data/1/0", "0"},
                        {"data", "/data/1/1", "0"},
                        {"data", "/data/1/1", "1152921504606846976"},
                        {"data", "/data/1/3", "7"},
                        {"data", "/data/1/4", "[3]"},
                        {"data", "/data/1/4", "[3, \"4\"]"}}) {
    auto damaged = whole;
    damaged[nlohmann::json::json_pointer(c.path)] = nlohmann::json::parse(c.value);
    const auto read = TrainerState::from_json(damaged.dump());
    ASSERT_FALSE(read.ok()) << c.path << " " << c.value;
    EXPECT_EQ(read.error().code, Code::kCorrupt);
    EXPECT_NE(read.error().message.find(c.field), std::string::npos) << read.error().message;
  }
}

TEST(WireCounter, CountsWhatComesFromOthersByKindAndNode) {
  WireCounter counter(1, {0, 0, 1, 1});
  for (int from = 0; from < 4; ++from) counter.add(Traffic::kGather, from, 10);
  counter.add(Traffic::kExchange, 0, 5);
  const WireBytes before = counter.bytes();
  counter.add(Traffic::kOther, 3, 7);
  EXPECT_EQ(before.gather.all, 30);
  EXPECT_EQ(before.gather.other_nodes, 20);
  EXPECT_EQ(before.exchange.all, 5);
  EXPECT_EQ(before.exchange.other_nodes, 0);
  EXPECT_EQ(counter.bytes().total().all, 42);
  const WireBytes grown = counter.bytes().since(before);
  EXPECT_EQ(grown.total().all, 7);
  EXPECT_EQ(grown.other.other_nodes, 7);
}

// 4 bytes a parameter instead of 12.
TEST(TrainingStep, ForwardOnlyHasNoOptimizerState) {
  install_counting_allocator();
  Config config;
  config.model.name = ModelFamily::kLinear;
  config.model.dim = 256;
  config.model.n_layers = 8;
  config.training.seq_len = 16;
  const auto spec = hf::configured_model(config, 512);
  ASSERT_TRUE(spec.ok());
  auto alone = join({});
  ASSERT_TRUE(alone.ok());
  const auto bytes_a_parameter = [&](bool forward_only) {
    const int64_t before = memory_stats().allocated_bytes;
    TrainingStep step(config, spec.value(), alone.value().groups(), forward_only);
    EXPECT_TRUE(step.initialize(nullptr).ok());
    return static_cast<double>(memory_stats().allocated_bytes - before) /
           static_cast<double>(spec.value().parameter_count());
  };
  EXPECT_NEAR(bytes_a_parameter(false), 12.0, 0.5);
  EXPECT_NEAR(bytes_a_parameter(true), 4.0, 0.2);
}

TEST(SameRun, TheErrorNamesTheRankTheFirstKeysAndBothValues) {
  EXPECT_EQ(run_difference("config", {1}, {"optimizer.lr=0.002", "training.seed=1"},
                           {"optimizer.lr=0.009", "training.seed=1"}),
            "rank 1 has a different config than rank 0: optimizer.lr is 0.009, and 0.002 on "
            "rank 0. "
            "All ranks of a job must compute the same run: start each with the same config, on the "
            "same kind of device");
  const std::string many = run_difference(
      "identity", {3, 5, 6}, {"a=1", "b=1", "c=1", "d=1", "e=1", "f=1"}, {"a=2", "g=a=b"});
  EXPECT_TRUE(
      many.starts_with("rank 3 has a different identity than rank 0: a is 2, and 1 on rank 0; "
                       "b is (absent), and 1 on rank 0; "))
      << many;
  EXPECT_NE(many.find("; and 3 more. These also differ from rank 0: 5, 6. All"), many.npos) << many;
}

}  // namespace
}  // namespace lockstep::core
