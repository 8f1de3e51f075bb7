#include "cli/compare/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/text.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;

std::string record(int64_t step, double loss, int64_t generation, int64_t world_size) {
  return text("{\"step\": ", step, ", \"loss\": ", loss, ", \"loss_hex\": \"", hex_float(loss),
              "\", \"grad_norm\": 1.5, \"grad_norm_hex\": \"0x1.8p+0\", \"tokens\": 1000, ",
              "\"step_time_s\": 0.5, \"world_size\": ", world_size,
              ", \"generation\": ", generation, "}\n");
}

TEST(RunLog, ReadsMetricsWithRedoneSteps) {
  const std::string contents = record(1, 4.0, 1, 2) + record(2, 3.5, 1, 2) + record(3, 3.25, 1, 2) +
                               record(2, 3.5, 2, 3) + record(3, 3.25, 2, 3) +
                               record(4, 3.125, 2, 3);
  const auto log = parse_metrics_jsonl(contents, "m");
  ASSERT_TRUE(log.ok()) << log.error().message;
  ASSERT_EQ(log.value().steps.size(), 4u);
  EXPECT_EQ(log.value().steps[3].loss, 3.125);
  EXPECT_TRUE(log.value().steps[0].exact);
  EXPECT_EQ(log.value().redone_steps, 2);
  EXPECT_TRUE(log.value().mismatches.empty());
  EXPECT_EQ(log.value().restarts, 1);
  ASSERT_EQ(log.value().generations.size(), 2u);
  EXPECT_EQ(log.value().generations[0].last_step, 3);
  EXPECT_EQ(log.value().generations[1].first_step, 2);
  EXPECT_EQ(log.value().generations[1].world_size, 3);
  EXPECT_DOUBLE_EQ(log.value().tokens_per_s.value(), 2000);
}

TEST(RunLog, NamesARedoneStepThatDiffersInItsLastBit) {
  const double loss = 3.5, other = std::nextafter(3.5, 4.0);
  const auto log = parse_metrics_jsonl(record(1, loss, 1, 2) + record(1, other, 2, 2), "m");
  ASSERT_TRUE(log.ok());
  ASSERT_EQ(log.value().mismatches.size(), 1u);
  EXPECT_EQ(log.value().mismatches[0].step, 1);
  EXPECT_EQ(log.value().mismatches[0].quantity, "loss");
  EXPECT_EQ(log.value().mismatches[0].redone, other);
}

TEST(RunLog, ReadsTrainerState) {
  const std::string contents = R"({
  "best_metric": null,
  "global_step": 30,
  "log_history": [
    {"epoch": 0.1, "grad_norm": 2.5, "learning_rate": 5e-05, "loss": 4.25, "step": 10},
    {"epoch": 0.2, "grad_norm": NaN, "learning_rate": 4e-05, "loss": 3.5, "step": 20},
    {"epoch": 0.2, "eval_loss": 3.75, "eval_runtime": 1.5, "step": 20},
    {"epoch": 0.3, "loss": Infinity, "step": 30},
    {"epoch": 0.3, "train_loss": 3.9, "train_runtime": 60.0, "step": 30}
  ],
  "logging_steps": 10
}
)";
  ASSERT_TRUE(is_trainer_state(contents));
  const auto log = parse_trainer_state(contents, "t");
  ASSERT_TRUE(log.ok()) << log.error().message;
  ASSERT_EQ(log.value().steps.size(), 3u);
  EXPECT_EQ(log.value().format, "trainer_state.json");
  EXPECT_EQ(log.value().steps[0].step, 10);
  EXPECT_EQ(log.value().steps[0].loss, 4.25);
  EXPECT_EQ(log.value().steps[0].grad_norm.value(), 2.5);
  EXPECT_TRUE(std::isnan(log.value().steps[1].grad_norm.value()));
  EXPECT_EQ(log.value().steps[1].validation_loss.value(), 3.75);
  EXPECT_TRUE(std::isinf(log.value().steps[2].loss));
  ASSERT_EQ(log.value().remarks.size(), 1u);
  EXPECT_THAT(log.value().remarks[0], HasSubstr("mean of the steps"));
  EXPECT_FALSE(is_trainer_state(record(1, 4.0, 1, 1)));
  EXPECT_THAT(parse_trainer_state(R"({"log_history": []})", "t").error().message,
              HasSubstr("no loss of a step"));
}

TEST(RunLog, TheHexadecimalValueWins) {
  const auto log =
      parse_metrics_jsonl("{\"step\": 1, \"loss\": 3.3, \"loss_hex\": \"0x1.8p+1\"}\n", "m");
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log.value().steps[0].loss, 3.0);
}

TEST(RunLog, ACutLastLineIsLeftOut) {
  const auto log = parse_metrics_jsonl(record(1, 4.0, 1, 1) + "{\"step\": 2, \"lo", "m");
  ASSERT_TRUE(log.ok()) << log.error().message;
  EXPECT_EQ(log.value().steps.size(), 1u);
  ASSERT_EQ(log.value().remarks.size(), 1u);
  EXPECT_THAT(log.value().remarks[0], HasSubstr("m:2"));
}

TEST(RunLog, BadRecordsNameFileAndLine) {
  const struct {
    std::string line, message;
  } cases[] = {
      {"not json\n", "m.jsonl:2: not JSON"},
      {"[1]\n", "m.jsonl:2: not a JSON object"},
      {"{\"loss\": 1.0}\n", "m.jsonl:2: \"step\" is missing"},
      {"{\"step\": 2}\n", "m.jsonl:2: it has no \"loss\""},
      {"{\"step\": 2, \"loss\": \"low\"}\n", "m.jsonl:2: loss is not a number"},
      {"{\"step\": 2, \"loss_hex\": \"zz\"}\n", "m.jsonl:2: loss_hex is not a hexadecimal float"},
  };
  for (const auto& each : cases) {
    const auto log = parse_metrics_jsonl(record(1, 4.0, 1, 1) + each.line, "m.jsonl");
    ASSERT_FALSE(log.ok()) << each.line;
    EXPECT_EQ(log.error().code, Code::kConfig);
    EXPECT_THAT(log.error().message, HasSubstr(each.message));
  }
  EXPECT_FALSE(parse_metrics_jsonl("", "m.jsonl").ok());
}

struct LogCase {
  const char* format;
  std::string contents;
  int64_t step;
  double loss;
  std::optional<double> grad_norm, tokens_per_s, mfu_pct;
};

// Two steps each, with the noise that the trainer prints around them.
std::vector<LogCase> log_cases() {
  return {
      {"torchtitan log",
       "[rank0]:[titan] 2025-06-25 13:20:46,458 - root - INFO - Training starts at step 1\n"
       "[rank0]:[titan] 2025-06-25 13:20:46,458 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss:  "
       "8.13580  \x1b[38;2;180;60;0mgrad_norm:  1.5092  \x1b[38;2;54;234;195mmemory: "
       "49.66GiB(52.28%)  \x1b[34mtps: 587  \x1b[36mtflops: 33.65  \x1b[35mmfu: 3.40%\x1b[39m\n"
       "[rank0]:[titan] 2025-06-25 13:20:56,458 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  "
       "3.65334  \x1b[38;2;180;60;0mgrad_norm:  1.2345  memory: 49.66GiB(52.28%)  tps: 5,847  "
       "tflops: "
       "338.65  mfu: 34.24%\x1b[39m\n"
       "[rank0]:[titan] x - INFO - \x1b[31mvalidate step: 10  \x1b[32mloss:  9.0000  memory: "
       "1GiB\n",
       10, 3.65334, 1.2345, 5847, 34.24},
      {"torchtitan log",
       "[lockstep] t - INFO - rank 0: step: 1/500  loss:  4.00000  tps: 10  mfu: N/A\n"
       "[lockstep] t - INFO - rank 0: step: 10/500  loss:  3.65334  grad_norm:  1.2345  memory:  "
       "1.20GiB(5.00%)  tps: 5,847  tflops: 3.38  mfu: N/A  eta: 0:12:31\n",
       10,
       3.65334,
       1.2345,
       5847,
       {}},
      {"Megatron-LM log",
       " [2025-01-01 10:00:00] iteration      100/  500000 | consumed samples:  12800 | elapsed "
       "time per "
       "iteration (ms): 525.7 | learning rate: 1.500000E-05 | global batch size: 128 | lm loss: "
       "9.123456E+00 | loss scale: 1.0 | grad norm: 2.345 | number of skipped iterations:   0 |\n"
       " [2025-01-01 10:01:00] iteration      200/  500000 | consumed samples:  25600 | elapsed "
       "time per "
       "iteration (ms): 520.0 | learning rate: 3.000000E-05 | global batch size: 128 | lm loss: "
       "6.931000E+00 | loss scale: 1.0 | grad norm: 1.125 | number of nan iterations:   0 |\n"
       " validation loss at iteration 200 | lm loss value: 6.9E+00 | lm loss PPL: 9.9E+02 |\n",
       200,
       6.931,
       1.125,
       {},
       {}},
      {"llm.c log",
       "num_parameters: 124475904 => bytes: 248951808\nval loss 11.009\n"
       "step    1/18865 | loss 11.009463 (+nanz)| norm 15.3720 (+nanz)| lr 8.57e-07 | 1234.98 ms | "
       "50.1% bf16 MFU | 424512 tok/s\n"
       "step    2/18865 | loss 10.955612 (+0.12z)| norm 14.1523 (-0.20z)| lr 1.71e-06 | 1180.20 ms "
       "| "
       "58.2% bf16 MFU | 444230 tok/s\n",
       2, 10.955612, 14.1523, 444230, 58.2},
      {"nanoGPT log",
       "step 0: train loss 10.9, val loss 10.9\niter 0: loss 10.9521, time 3000.00ms, mfu "
       "-100.00%\n"
       "iter 10: loss 3.2514, time 100.12ms, mfu 17.25%\n",
       10,
       3.2514,
       {},
       {},
       17.25},
      {"Hugging Face Trainer log",
       "  5%|#   | 10/200 [00:10<03:00]{'loss': 2.5, 'grad_norm': 1.25, 'learning_rate': 5e-05, "
       "'epoch': 0.1}\n{'eval_loss': 2.0, 'epoch': 0.1}\n"
       "{'loss': '2.25', 'grad_norm': '1.5', 'learning_rate': '4e-05', 'epoch': '0.2'}\n"
       "{'train_runtime': 10.0, 'train_loss': 2.3}\n",
       2,
       2.25,
       1.5,
       {},
       {}},
  };
}

TEST(ConsoleLog, ReadsWhatOtherTrainersPrint) {
  for (const LogCase& each : log_cases()) {
    const auto log = parse_console_log(each.contents, "log.txt");
    ASSERT_TRUE(log.ok()) << each.format << ": " << log.error().message;
    EXPECT_EQ(log.value().format, each.format);
    ASSERT_EQ(log.value().steps.size(), 2u) << each.format;
    const StepRecord& last = log.value().steps.back();
    EXPECT_EQ(last.step, each.step) << each.format;
    EXPECT_EQ(last.loss, each.loss) << each.format;
    EXPECT_EQ(last.grad_norm, each.grad_norm) << each.format;
    EXPECT_EQ(log.value().tokens_per_s, each.tokens_per_s) << each.format;
    EXPECT_EQ(log.value().mfu_pct, each.mfu_pct) << each.format;
    EXPECT_FALSE(last.exact) << each.format;
  }
}

TEST(ConsoleLog, RefusesAFileWithoutSteps) {
  const auto log = parse_console_log("hello\nstep by step\nloss of words\n", "poem.txt");
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.error().code, Code::kConfig);
  EXPECT_THAT(log.error().message, HasSubstr("poem.txt"));
  EXPECT_THAT(log.error().message, HasSubstr("torchtitan"));
}

}  // namespace
}  // namespace lockstep::cli
