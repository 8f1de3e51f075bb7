#include "cli/compare/compare_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <sstream>

#include "base/json.h"
#include "base/text.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

class Compare : public testing::Test {
 protected:
  static std::string record(int64_t step, double loss, int64_t generation, int64_t world_size) {
    return text("{\"step\":", step, ",\"loss_hex\":\"", hex_float(loss),
                "\",\"grad_norm_hex\":\"0x1p+0\"", ",\"generation\":", generation,
                ",\"world_size\":", world_size, "}\n");
  }
  static double loss_at(int64_t step) { return 4.0 / std::sqrt(static_cast<double>(step)); }

  void write(const std::string& path, const std::string& contents) {
    ASSERT_TRUE(files_.make_directories((folder_ / path).parent_path()).ok());
    ASSERT_TRUE(publish_file(files_, folder_ / path, contents).ok());
  }
  void write_straight_run(const std::string& run) {
    std::string lines;
    for (int64_t step = 1; step <= 60; ++step) lines += record(step, loss_at(step), 1, 2);
    write(run + "/metrics.jsonl", lines);
    write(run + "/metrics.json", R"({"tokens_per_s": 5847.4, "mfu_pct": 34.2, "tflops": 3.38})");
  }
  // Killed at 25 and 44, resumed from the checkpoints of 20 and 40.
  void write_killed_run(const std::string& run, double shift_at_50 = 0) {
    std::string lines;
    for (int64_t step = 1; step <= 25; ++step) lines += record(step, loss_at(step), 1, 2);
    for (int64_t step = 21; step <= 44; ++step) lines += record(step, loss_at(step), 2, 3);
    for (int64_t step = 41; step <= 60; ++step) {
      lines += record(step, loss_at(step) + (step == 50 ? shift_at_50 : 0), 3, 1);
    }
    write(run + "/metrics.jsonl", lines);
    write(run + "/events.jsonl",
          "{\"event\":\"generation_start\",\"generation\":1,\"rank\":-1}\n"
          "{\"event\":\"failure_detected\",\"generation\":1,\"rank\":1,\"reason\":\"killed by "
          "SIGKILL\"}\n"
          "{\"event\":\"generation_start\",\"generation\":2}\n"
          "{\"event\":\"failure_detected\",\"generation\":2,\"rank\":0,\"reason\":\"killed by "
          "SIGKILL\"}\n"
          "{\"event\":\"generation_start\",\"generation\":3}\n"
          "{\"event\":\"worker_exit\",\"generation\":3,\"rank\":0,\"reason\":\"exit code 0\"}\n");
  }
  int compare(std::vector<std::string> runs, CompareOptions options = {}) {
    for (const std::string& run : runs) options.runs.push_back(folder_ / run);
    out_.str("");
    err_.str("");
    return run_compare(options, files_, out_, err_);
  }

  FileSystem& files_ = posix_file_system();
  const test_support::TempDir folder_;
  std::ostringstream out_, err_;
};

// Another config makes other losses, and that is said beside the first of them.
TEST_F(Compare, RunsThatWereNotToComputeTheSameAreToldApart) {
  const auto write_identity = [this](const std::string& run, int steps) {
    write(run + "/run_args.json", text(R"({"config": {}, "identity": ["lr_scheduler.total_steps=)",
                                       steps, R"(", "training.seed=1"]})"));
  };
  write_straight_run("a");
  write_killed_run("b", /*shift_at_50=*/0.5);
  write_identity("a", 400);
  write_identity("b", 10);
  EXPECT_EQ(compare({"a", "b"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("the runs differ in keys that may change the loss: "
                                    "lr_scheduler.total_steps: was 400, is 10\n"));
  write_identity("b", 400);
  EXPECT_EQ(compare({"a", "b"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("first differs at step 50"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("the runs differ in keys")));
}

TEST_F(Compare, StepsWithoutUpdateAreShownAndTheirNansAreEqual) {
  const std::string left_out =
      R"({"step":2,"loss_hex":"nan","grad_norm_hex":"nan","skipped":"left out"})";
  const std::string lines = record(1, 4, 1, 2) + left_out + "\n" + record(3, 3, 1, 2);
  write("a/metrics.jsonl", lines);
  write("b/metrics.jsonl", record(1, 4, 1, 2) + left_out + "\n" + lines);  // met again
  CompareOptions options;
  options.require_identical = true;
  EXPECT_EQ(compare({"a", "b"}, options), 0) << out_.str();
  EXPECT_THAT(out_.str(), testing::ContainsRegex("steps without update +2 .left out."));
  options.json = true;
  EXPECT_EQ(compare({"a", "b"}, options), 0);
  const auto runs = nlohmann::json::parse(out_.str())["runs"];
  EXPECT_EQ(runs[1]["steps_without_update"],
            nlohmann::json::parse(R"([{"step": 2, "why": "left out"}])"));
  EXPECT_EQ(runs[1]["redone_mismatches"].size(), 0u);
}

TEST_F(Compare, AKilledRunEqualsTheStraightOne) {
  write_straight_run("straight");
  write_killed_run("killed");
  CompareOptions options;
  options.require_identical = true;
  options.plot = folder_ / "loss.svg";
  EXPECT_EQ(compare({"straight", "killed"}, options), 0) << err_.str();
  for (const char* words : {"60 of 60", "2 (1-25), 3 (21-44), 1 (41-60)", "5,847", "34.20 %",
                            "(+9 redone, each repeated its loss bit for bit)",
                            "every loss and gradient norm equals the reference's, bit for bit"}) {
    EXPECT_THAT(out_.str(), HasSubstr(words));
  }
  const auto svg = read_file(files_, folder_ / "loss.svg");
  ASSERT_TRUE(svg.ok());
  for (const char* words : {"rank 1 killed by SIGKILL", "rank 0 killed by SIGKILL", "3 ranks",
                            "1 rank", "60 of 60 steps bit-identical"}) {
    EXPECT_THAT(svg.value(), HasSubstr(words));
  }
}

// The same command, typed again after Ctrl-C, goes on in the same folder.
TEST_F(Compare, RatesSayWhoseTheyAre) {
  write_straight_run("a");
  write("b.log",
        "step: 1/60  loss:  4.00000  tps: 10  tflops: 1.00  mfu: N/A\n"
        "step: 2/60  loss:  3.65334  tps: 5,847  tflops: 3.38  mfu: N/A\n");
  compare({"a", "b.log"});
  EXPECT_THAT(out_.str(), testing::ContainsRegex("tokens/s of all ranks +5,847 +5,847 a rank"));
  EXPECT_THAT(out_.str(), testing::ContainsRegex("TFLOP/s of all ranks +3.380 +3.380 a rank"));
}

TEST_F(Compare, AStopIsNoRestart) {
  write_straight_run("straight");
  write("stopped/metrics.jsonl", record(1, loss_at(1), 1, 2) + record(2, loss_at(2), 2, 2));
  write("stopped/metrics.json", "{\"restarts\": 1}");
  write("stopped/events.jsonl",
        "{\"event\":\"generation_start\",\"generation\":1}\n"
        "{\"event\":\"stop_requested\",\"generation\":1,\"reason\":\"SIGINT\"}\n"
        "{\"event\":\"worker_exit\",\"generation\":1,\"rank\":0,\"reason\":\"exit code 75\"}\n"
        "{\"event\":\"failed\",\"generation\":1}\n"
        "{\"event\":\"generation_start\",\"generation\":2}\n");
  CompareOptions options;
  options.json = true;
  ASSERT_EQ(compare({"straight", "stopped"}, options), 0) << err_.str();
  const auto run = nlohmann::json::parse(out_.str())["runs"][1];
  EXPECT_EQ(run["restarts"], 0);
  EXPECT_EQ(run["generations"][0]["ended_by"], "stopped on request");
}

TEST_F(Compare, OneBitIsADifference) {
  write_straight_run("straight");
  write_killed_run("killed", std::nextafter(loss_at(50), 9.0) - loss_at(50));
  EXPECT_EQ(compare({"straight", "killed"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("59 of 60"));
  EXPECT_THAT(out_.str(), HasSubstr("first differs at step 50"));
  CompareOptions options;
  options.require_identical = true;
  EXPECT_EQ(compare({"straight", "killed"}, options), 1);
}

TEST_F(Compare, ARedoneStepThatDiffersIsReported) {
  write_straight_run("straight");
  write("odd/metrics.jsonl", record(1, 9.0, 1, 1) + record(1, loss_at(1), 2, 1));
  CompareOptions options;
  options.require_identical = true;
  EXPECT_EQ(compare({"straight", "odd"}, options), 1);
  EXPECT_THAT(out_.str(), HasSubstr("WARNING: odd: step 1 was redone with a different loss"));
}

TEST_F(Compare, JsonHoldsTheSame) {
  write_straight_run("straight");
  write_killed_run("killed");
  write("titan.log", "step: 10  loss:  1.30000  grad_norm:  1.0  tps: 5,847\n");
  CompareOptions options;
  options.json = true;
  ASSERT_EQ(compare({"straight", "killed", "titan.log"}, options), 0) << err_.str();
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["runs"].size(), 3u);
  EXPECT_EQ(json["runs"][1]["restarts"], 2);
  EXPECT_EQ(json["differences"][0]["identical"], true);
  EXPECT_EQ(json["differences"][0]["identical_steps"], 60);
  EXPECT_EQ(json["differences"][1]["identical"], false);
  EXPECT_EQ(json["differences"][1]["common_steps"], 1);
  EXPECT_NEAR(json["differences"][1]["max_loss_difference"], std::abs(1.3 - loss_at(10)), 1e-12);
}

TEST_F(Compare, BadInputIsNamed) {
  write_straight_run("straight");
  write("broken/metrics.jsonl", record(1, 1, 1, 1) + "oops\n" + record(2, 1, 1, 1));
  write("late/metrics.jsonl", record(1000, 1, 1, 1));
  write("empty/other.txt", "");
  const struct {
    const char *run, *message;
  } cases[] = {{"missing", "no such run folder or log"},
               {"broken", "metrics.jsonl:2: not JSON"},
               {"late", "no step is in both"},
               {"empty", "has no metrics.jsonl"}};
  for (const auto& each : cases) {
    EXPECT_EQ(compare({"straight", each.run}), 64) << each.run;
    EXPECT_THAT(err_.str(), HasSubstr(each.message));
    EXPECT_THAT(err_.str(), HasSubstr((folder_ / each.run).string()));
    EXPECT_EQ(out_.str(), "");
  }
}

TEST_F(Compare, APlotThatCannotBeWrittenFails) {
  write_straight_run("straight");
  CompareOptions options;
  options.plot = folder_ / "nowhere" / "loss.svg";
  EXPECT_EQ(compare({"straight", "straight"}, options), 74);
}

TEST_F(Compare, ANotANumberIsNeverEqualToANumber) {
  write_straight_run("straight");
  write("nan/metrics.jsonl", "{\"step\":3,\"loss_hex\":\"nan\"}\n" + record(4, loss_at(4), 1, 1));
  CompareOptions options;
  options.json = true;
  ASSERT_EQ(compare({"straight", "nan"}, options), 0) << err_.str();
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_TRUE(json["differences"][0]["max_loss_difference"].is_null());
  EXPECT_EQ(json["differences"][0]["first_different_step"], 3);
}

// Two ranks, validated at 2 and 4.
class CompareMemory : public Compare {
 protected:
  static std::string memory_line(int rank, const std::string& stage, double now, double peak,
                                 double most) {
    return text("[lockstep] 2026-11-21 10:57:03,114 - INFO - rank ", rank, ": memory {\"stage\":\"",
                stage, "\",\"rank\":", rank, ",\"cuda_memory_allocated_GB\":", now,
                ",\"cuda_max_memory_allocated_GB\":", most,
                ",\"stage_max_memory_allocated_GB\":", peak, "}\n");
  }
  void write_measured_run(const std::string& run) {
    std::string lines;
    for (int64_t step = 1; step <= 4; ++step)
      lines +=
          text("{\"step\":", step, ",\"loss_hex\":\"", hex_float(5.0 - double(step)),
               "\",\"tokens\":1000,\"step_time_s\":0.5",
               step % 2 == 0 ? text(",\"validation_loss\":", step == 2 ? 3.5 : 3.75) : "", "}\n");
    write(run + "/metrics.jsonl", lines);
    write(run + "/metrics.json", R"({"peak_memory_GB": 1.5})");
    write(run + "/logs/rank_0.log", memory_line(0, "after model creation", 0.5, 0.5, 0.5) +
                                        memory_line(0, "after warmup", 0.625, 1.0, 1.0));
    write(run + "/logs/rank_1.log", memory_line(1, "after model creation", 0.25, 0.75, 0.75) +
                                        "memory {\"stage\": cut\n" +
                                        memory_line(1, "after warmup", 0.25, 1.25, 1.25));
  }
};

TEST_F(CompareMemory, OneRunAloneIsShown) {
  write_measured_run("a");
  CompareOptions options;
  options.require_identical = true;  // nothing was redone with another loss
  options.plot = folder_ / "loss.svg";
  EXPECT_EQ(compare({"a"}, options), 0) << err_.str();
  for (
      const char* words :
      {"validation loss              3.75 (step 4), least 3.5 (step 2)",
       "peak memory by rank          0: 1.40 GiB, 1: 1.16 GiB",  // of rank 0 metrics.json says more
       "memory after model creation", "476.84 MiB, peak 715.26 MiB", "memory after warmup",
       "596.05 MiB, peak 1.16 GiB"})
    EXPECT_THAT(out_.str(), HasSubstr(words));
  EXPECT_THAT(out_.str(), testing::Not(HasSubstr("steps in both")));
  const auto svg = read_file(files_, folder_ / "loss.svg");
  ASSERT_TRUE(svg.ok());
  for (const char* words : {"4 steps, final loss 1.0000", "a, validation", "stroke-dasharray"})
    EXPECT_THAT(svg.value(), HasSubstr(words));
}

TEST_F(CompareMemory, TwoRunsStandBesideEachOther) {
  write_measured_run("a");
  write("b/metrics.jsonl", record(1, 4, 1, 2));
  EXPECT_EQ(compare({"b", "a"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), testing::ContainsRegex("peak memory by rank +N/A +0: 1.40 GiB"));
  EXPECT_THAT(out_.str(), testing::ContainsRegex("memory after warmup +N/A +596.05 MiB"));
  EXPECT_THAT(out_.str(), testing::ContainsRegex("validation loss +none +3.75"));
  CompareOptions options;
  options.json = true;
  EXPECT_EQ(compare({"b", "a"}, options), 0);
  const auto run = nlohmann::json::parse(out_.str())["runs"][1];
  EXPECT_EQ(run["peak_memory"][1], nlohmann::json::parse(R"({"rank": 1, "bytes": 1250000000})"));
  EXPECT_EQ(run["memory_by_stage"][0]["stage"], "after model creation");
  EXPECT_EQ(run["memory_by_stage"][0]["peak_bytes"], 750000000);
  EXPECT_EQ(run["validation"].dump(), R"([{"loss":3.5,"step":2},{"loss":3.75,"step":4}])");
}

TEST_F(CompareMemory, ManyRanksAreARange) {
  write_measured_run("a");
  for (int rank = 2; rank < 6; ++rank)
    write(text("a/logs/rank_", rank, ".log"), memory_line(rank, "after warmup", 1, 1, 0.5 * rank));
  EXPECT_EQ(compare({"a"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("953.67 MiB (rank 2) to 2.33 GiB (rank 5)"));
}

TEST_F(CompareMemory, CurvesOverTokensAndMeans) {
  write_measured_run("a");
  const auto log = read_run_log(files_, folder_ / "a");
  ASSERT_TRUE(log.ok());
  const LossPlot plot = loss_plot({log.value()}, {}, {.over_tokens = true, .smooth_steps = 3});
  EXPECT_EQ(plot.x_name, "tokens");
  EXPECT_EQ(plot.y_name, "loss, mean of 3 steps");
  ASSERT_EQ(plot.curves.size(), 2u);
  std::vector<double> x, y;
  for (const PlotPoint& point : plot.curves[0].points) x.push_back(point.x), y.push_back(point.y);
  EXPECT_THAT(x, testing::ElementsAre(1000, 2000, 3000, 4000));
  EXPECT_THAT(y, testing::ElementsAre(4, 3.5, 3, 2));  // losses 4, 3, 2, 1
  EXPECT_EQ(plot.curves[1].points[1].x, 4000);
  EXPECT_EQ(plot.curves[1].points[1].y, 3.75);  // a validation is never smoothed

  write("titan.log", "step: 10  loss:  1.30000  grad_norm:  1.0  tps: 5,847\n");
  CompareOptions options;
  options.plot = folder_ / "loss.svg";
  options.curves.over_tokens = true;
  EXPECT_EQ(compare({"titan.log"}, options), 64);
  EXPECT_THAT(err_.str(),
              HasSubstr("titan.log does not record the tokens of its steps; use --x step"));
}

TEST_F(CompareMemory, ANotANumberIsNotSmoothedAway) {
  write("a/metrics.jsonl",
        record(1, 4, 1, 2) + "{\"step\":2,\"loss_hex\":\"nan\"}\n" + record(3, 2, 1, 2));
  const auto log = read_run_log(files_, folder_ / "a");
  ASSERT_TRUE(log.ok());
  const LossPlot plot = loss_plot({log.value()}, {}, {.over_tokens = false, .smooth_steps = 2});
  EXPECT_TRUE(std::isnan(plot.curves[0].points[1].y));
  EXPECT_EQ(plot.curves[0].points[2].y, 3);
}

TEST(CompareFlags, AreParsed) {
  CLI::App app;
  CompareOptions options;
  add_compare_options(app, options);
  app.parse("a b --plot out.svg --json --require-identical --x tokens --smooth 5");
  EXPECT_EQ(options.runs.size(), 2u);
  EXPECT_EQ(options.plot, "out.svg");
  EXPECT_TRUE(options.json && options.require_identical && options.curves.over_tokens);
  EXPECT_EQ(options.curves.smooth_steps, 5);
  EXPECT_THROW(app.parse("a --x time"), CLI::ParseError);
  EXPECT_THROW(app.parse("a --smooth 0"), CLI::ParseError);
}

}  // namespace
}  // namespace lockstep::cli
