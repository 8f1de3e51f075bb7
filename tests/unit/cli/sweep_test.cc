#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/sweep/sweep_plan.h"
#include "cli/sweep/sweep_report.h"
#include "cli/sweep/sweep_row.h"
#include "cli/sweep/sweep_words.h"
#include "config/config.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SweepWords words_of(const std::vector<std::string>& arguments) {
  auto words = split_sweep_words(arguments);
  EXPECT_TRUE(words.ok()) << (words.ok() ? "" : words.error().message);
  return words.ok() ? words.value() : SweepWords{};
}

std::vector<std::string> names_of(const std::vector<SweepRow>& rows) {
  std::vector<std::string> names;
  for (const SweepRow& row : rows) names.push_back(row.name);
  return names;
}

TEST(SweepWords, OursAreTakenOutAndOthersStay) {
  const SweepWords words =
      words_of({"--over", "training.local-batch-size=1,2", "a.toml", "--over=--strategy=ddp",
                "--steps=7", "--out", "o", "--json", "--nproc-per-node", "2"});
  ASSERT_EQ(words.axes.size(), 2u);
  EXPECT_EQ(words.axes[0].key, "training.local_batch_size");
  EXPECT_THAT(words.axes[0].values, ElementsAre("1", "2"));
  EXPECT_EQ(words.axes[1].key, "strategy");
  EXPECT_EQ(words.steps, 7);
  EXPECT_EQ(words.out, "o");
  EXPECT_TRUE(words.json && !words.report);
  EXPECT_THAT(words.launch, ElementsAre("a.toml", "--nproc-per-node", "2"));
}

TEST(SweepWords, WhatIsWrongIsNamed) {
  const struct {
    std::vector<std::string> words;
    const char* message;
  } cases[] = {{{"a.toml"}, "no values are given"},
               {{"a.toml", "--over"}, "--over needs a value"},
               {{"--over", "x"}, "is not a key with values"},
               {{"--over", "x="}, "is not a key with values"},
               {{"--over", "=1"}, "is not a key with values"},
               {{"--over", "x=1,,2"}, "has an empty value"},
               {{"--over", "x=1,2,1"}, "1 appears twice"},
               {{"--over", "x=1", "--over", "x=2"}, "--over x is given twice"},
               {{"--over", "job.dump_folder=a,b"}, "each row has its own folder"},
               {{"--over", "x=1", "--job.dump-folder=a"}, "--out FOLDER sets"},
               {{"--over", "x=1", "--steps", "0"}, "is not a number of steps"},
               {{"--over", "x=1", "--steps", "4x"}, "is not a number of steps"}};
  for (const auto& each : cases) {
    const auto words = split_sweep_words(each.words);
    ASSERT_FALSE(words.ok()) << each.message;
    EXPECT_EQ(words.error().code, Code::kConfig);
    EXPECT_THAT(words.error().message, HasSubstr(each.message));
  }
}

TEST(SweepWords, RowsAreTheProductAndTheLastKeyIsFastest) {
  const auto rows =
      rows_of({{"training.local_batch_size", {"1", "2"}}, {"p.strategy", {"a", "b"}}});
  ASSERT_TRUE(rows.ok());
  EXPECT_THAT(names_of(rows.value()),
              ElementsAre("local_batch_size=1,strategy=a", "local_batch_size=1,strategy=b",
                          "local_batch_size=2,strategy=a", "local_batch_size=2,strategy=b"));
  EXPECT_THAT(rows.value()[2].values, ElementsAre("2", "a"));
}

TEST(SweepWords, NamesOfFoldersArePlainAndTellRowsApart) {
  const auto rows = rows_of({{"model.name", {"llama"}}, {"optimizer.name", {"a/b c"}}});
  ASSERT_TRUE(rows.ok());  // both keys end in "name": they stay whole
  EXPECT_THAT(names_of(rows.value()), ElementsAre("model.name=llama,optimizer.name=a_b_c"));
  EXPECT_FALSE(rows_of({{"x", {"a/b", "a b"}}}).ok());
  EXPECT_FALSE(rows_of({{"x", {std::string(300, 'y')}}}).ok());
  SweepAxis many{"x", {}};
  for (size_t i = 0; i <= kMaxSweepRows; ++i) many.values.push_back(std::to_string(i));
  EXPECT_FALSE(rows_of({many}).ok());
  many.values.pop_back();
  EXPECT_TRUE(rows_of({many}).ok());
}

TEST(SweepWords, TheUsersWordsComeBehindOurDefaultsAndBeforeTheRow) {
  const SweepWords words =
      words_of({"a.toml", "--over", "x=1,2", "--checkpoint.enable", "--steps", "3"});
  const auto rows = rows_of(words.axes);
  EXPECT_THAT(
      config_words(words, rows.value()[1], "out"),
      ElementsAre("--training.steps=3", "--training.epochs=0", "--checkpoint.enable=false",
                  "--checkpoint.keep_best=false", "--validation.freq=0", "--validation.patience=0",
                  "a.toml", "--checkpoint.enable", "--x=2", "--job.dump_folder=out/x=2"));
}

class Sweep : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& contents) {
    ASSERT_TRUE(files_.make_directories((folder_ / path).parent_path()).ok());
    ASSERT_TRUE(publish_file(files_, folder_ / path, contents).ok());
  }
  SweepPlan plan(std::vector<std::string> words) {
    words.insert(words.begin(), (folder_ / "a.toml").string());
    words.insert(words.end(), {"--out", (folder_ / "out").string()});
    auto planned = plan_sweep(words_of(words));
    EXPECT_TRUE(planned.ok()) << (planned.ok() ? "" : planned.error().message);
    return planned.ok() ? planned.value() : SweepPlan{};
  }
  static std::string step(int64_t number, int64_t generation, double seconds) {
    return text("{\"step\":", number,
                ",\"loss_hex\":\"0x1.8p+1\",\"tokens\":1000,\"world_size\":2,\"generation\":",
                generation, ",\"step_time_s\":", seconds, "}\n");
  }

  FileSystem& files_ = posix_file_system();
  const test_support::TempDir folder_;
};

TEST_F(Sweep, ARowHasAConfigThatGivesItsRun) {
  write("a.toml", "[training]\nseq_len = 64\n[checkpoint]\nenable = true\n");
  const SweepPlan planned =
      plan({"--over", "batch_size=1,2", "--over", "training.seq_len=32", "--steps", "5"});
  ASSERT_TRUE(pin_plan(files_, planned).ok());
  const auto config = parse_config(folder_ / "out/batch_size=2,seq_len=32/config.toml", {});
  ASSERT_TRUE(config.ok()) << config.error().message;
  const Config& c = config.value().config;
  EXPECT_EQ(c.training.local_batch_size, 2);
  EXPECT_EQ(c.training.seq_len, 32);
  EXPECT_EQ(c.training.steps, 5);
  EXPECT_FALSE(c.checkpoint.enable);
  EXPECT_EQ(c.job.dump_folder, folder_ / "out/batch_size=2,seq_len=32");
}

TEST_F(Sweep, AnotherPlanIsRefused) {
  write("a.toml", "[training]\nseq_len = 64\n");
  ASSERT_TRUE(pin_plan(files_, plan({"--over", "batch_size=1,2"})).ok());
  EXPECT_TRUE(pin_plan(files_, plan({"--over", "batch_size=1,2"})).ok());
  EXPECT_TRUE(pin_plan(files_, plan({"--over", "batch_size=1,2", "--json"})).ok());
  const auto refused = [&](std::vector<std::string> words, const char* message) {
    const auto pinned = pin_plan(files_, plan(std::move(words)));
    ASSERT_FALSE(pinned.ok()) << message;
    EXPECT_EQ(pinned.error().code, Code::kConfig);
    EXPECT_THAT(pinned.error().message, HasSubstr("sweep.json belongs to another sweep: "));
    EXPECT_THAT(pinned.error().message, HasSubstr(message));
  };
  refused({"--over", "batch_size=1,4"}, R"(over is {"batch_size":["1","2"]}, but here it is)");
  refused({"--over", "batch_size=1,2", "--steps", "9"}, "steps is 20, but here it is 9");
  refused({"--over", "batch_size=1,2", "--model.dim=128"}, "words is ");
  write("a.toml", "[training]\nseq_len = 128\n");
  refused({"--over", "batch_size=1,2"}, "a.toml has changed since");
  write("out/sweep.json", "[]");
  const auto damaged = pin_plan(files_, plan({"--over", "batch_size=1,2"}));
  ASSERT_FALSE(damaged.ok());
  EXPECT_THAT(damaged.error().message, HasSubstr("sweep.json is not the plan of a sweep"));
}

TEST_F(Sweep, AWrongCombinationIsARowAndAWrongSweepIsNone) {
  write("a.toml", "[model]\ndim = 64\nn_heads = 4\n");
  const SweepPlan planned = plan({"--over", "model.n_heads=4,7"});
  ASSERT_TRUE(pin_plan(files_, planned).ok());
  const auto row = read_row(files_, folder_ / "out/n_heads=7");
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row.value().status, 64);
  EXPECT_TRUE(row.value().settled());
  EXPECT_THAT(row.value().why, HasSubstr("heads"));
  EXPECT_EQ(read_row(files_, folder_ / "out/n_heads=4").value().status, std::nullopt);

  const std::string path = (folder_ / "a.toml").string();
  for (const char* over : {"model.n_heads=7,9", "model.n_haeds=4", "model.n_heads=four"})
    EXPECT_FALSE(plan_sweep(words_of({path, "--over", over})).ok()) << over;
  EXPECT_FALSE(plan_sweep(words_of({"--over", "model.n_heads=4"})).ok());
  EXPECT_FALSE(plan_sweep(words_of({path, "b.toml", "--over", "model.n_heads=4"})).ok());
  EXPECT_FALSE(plan_sweep(words_of({path + "x", "--over", "model.n_heads=4"})).ok());
}

TEST_F(Sweep, AFinishedRowsFiguresLeaveFirstStepsOut) {
  // Started anew behind step 2, and slow at the first step each time.
  write("row/metrics.jsonl",
        step(1, 1, 9) + step(2, 1, 1) + step(3, 2, 8) + step(4, 2, 2) + step(5, 2, 4));
  write("row/metrics.json", R"({"tokens_per_s": 250, "mfu_pct": 10, "peak_memory_GB": 0.5})");
  write("row/logs/rank_1.log",
        "memory {\"stage\":\"after training\",\"rank\":1,\"cuda_max_memory_allocated_GB\":0.75}\n");
  write("row/exit_status", "0\n");
  const auto row = read_row(files_, folder_ / "row");
  ASSERT_TRUE(row.ok()) << row.error().message;
  const RowOutcome& outcome = row.value();
  EXPECT_TRUE(outcome.settled());
  EXPECT_EQ(outcome.steps, 5);
  EXPECT_EQ(outcome.ranks, 2);
  EXPECT_EQ(outcome.step_time_s, 2);  // of 1, 2, 4
  EXPECT_EQ(outcome.tokens_per_s, 500);
  EXPECT_EQ(outcome.mfu_pct, 20);
  EXPECT_EQ(outcome.peak_bytes, 750'000'000);
  EXPECT_EQ(outcome.loss, 3);
}

TEST_F(Sweep, OneStepIsAllThereIs) {
  write("row/metrics.jsonl", step(1, 1, 4));
  write("row/exit_status", "0\n");
  EXPECT_EQ(read_row(files_, folder_ / "row").value().step_time_s, 4);
}

TEST_F(Sweep, HowARowEndedSaysWhetherItIsRunAgain) {
  const struct {
    const char *file, *words;
    bool settled;
  } cases[] = {
      {"71\n", "out of memory", true},       {"64\n", "wrong config", true},
      {"70\n", "exit code 70 (bug)", false}, {"93\n", "exit code 93 (do not restart)", false},
      {"137\n", "exit code 137", false},     {"", "not run", false}};  // the file was cut off
  for (const auto& each : cases) {
    write("row/exit_status", each.file);
    write("row/console.log",
          "[lockstep] 2026 - ERROR - first\n[lockstep] 2026 - ERROR - out of room\nlater\n");
    write("row/metrics.jsonl", step(1, 1, 4) + step(2, 1, 4));
    const auto row = read_row(files_, folder_ / "row");
    ASSERT_TRUE(row.ok());
    EXPECT_EQ(status_words(row.value().status), each.words);
    EXPECT_EQ(row.value().settled(), each.settled) << each.file;
    EXPECT_EQ(row.value().why, row.value().status ? "out of room" : "");
    EXPECT_FALSE(row.value().tokens_per_s) << "a row that failed has no figures";
  }
}

TEST_F(Sweep, ADoneRowWithoutItsFilesIsAnError) {
  write("row/exit_status", "0\n");
  EXPECT_FALSE(read_row(files_, folder_ / "row").ok());
}

SweepResults two_by_two() {
  SweepResults results;
  results.axes = {{"parallelism.strategy", {"ddp", "full_shard"}},
                  {"training.local_batch_size", {"8", "16"}}};
  results.rows = rows_of(results.axes).value();
  RowOutcome done;
  done.status = 0;
  done.steps = 20;
  done.step_time_s = 0.25;
  done.tokens_per_s = 4096.4;
  done.ranks = 2;
  done.mfu_pct = 12.5;
  done.peak_bytes = int64_t{3} << 29;
  done.loss = 2.5;
  RowOutcome failed;
  failed.status = 71;
  failed.why = "no, \"really\"";
  results.outcomes = {done, failed, done, RowOutcome{}};
  results.outcomes[3].status = 70;
  results.outcomes[3].why = "a bug";
  results.outcomes[2].mfu_pct.reset();
  results.outcomes[2].tokens_per_s = 2048;
  return results;
}

TEST(SweepReport, ATableHasARowForEachAndSaysWhy) {
  const auto lines = split(sweep_table(two_by_two()), '\n');
  ASSERT_GE(lines.size(), 7u);
  EXPECT_THAT(lines[0], testing::ContainsRegex(
                            "strategy +local_batch_size +step time s +tokens/s +scaling +MFU"));
  EXPECT_THAT(lines[2], testing::ContainsRegex(
                            "ddp +8 +0.2500 +4,096 +1.00 +12.50 % +1.50 GiB +2.5000 +done"));
  EXPECT_THAT(lines[3], testing::ContainsRegex("ddp +16 +- +- +- +- +- +- +out of memory"));
  EXPECT_THAT(lines[4], testing::ContainsRegex("full_shard +8 .*2,048 +0.50 +- +1.50 GiB"));
  EXPECT_THAT(lines[5], testing::ContainsRegex("full_shard +16 +- .* +exit code 70 .bug."));
  EXPECT_EQ(lines[6], "strategy=full_shard,local_batch_size=16: a bug");
}

TEST(SweepReport, ScalingIsOfARankAgainstTheFirstRowThatWasDone) {
  SweepResults results;
  results.axes = {{"nproc_per_node", {"1", "2", "4", "8"}}};
  results.rows = rows_of(results.axes).value();
  results.outcomes.resize(4);
  results.outcomes[0].status = 71;  // one rank has not enough memory
  int64_t ranks = 2;
  for (const auto& [row, tokens_per_s] : {std::pair(1, 2000.0), {2, 3600.0}, {3, 8400.0}}) {
    results.outcomes[static_cast<size_t>(row)].tokens_per_s = tokens_per_s;
    results.outcomes[static_cast<size_t>(row)].ranks = ranks;
    ranks *= 2;
  }
  const auto json = nlohmann::json::parse(sweep_json(results))["rows"];
  EXPECT_TRUE(json[0]["scaling"].is_null());
  EXPECT_DOUBLE_EQ(json[1]["scaling"], 1.0);
  EXPECT_DOUBLE_EQ(json[2]["scaling"], 0.9);
  EXPECT_DOUBLE_EQ(json[3]["scaling"], 1.05);
}

TEST(SweepReport, JsonAndCsvHoldTheSame) {
  SweepResults results = two_by_two();
  const auto json = nlohmann::json::parse(sweep_json(results))["rows"];
  ASSERT_EQ(json.size(), 4u);
  EXPECT_EQ(json[0]["values"]["training.local_batch_size"], "8");
  EXPECT_EQ(json[0]["peak_memory_bytes"], int64_t{3} << 29);
  EXPECT_EQ(json[1]["exit"], "out of memory");
  EXPECT_EQ(json[1]["why"], "no, \"really\"");
  EXPECT_TRUE(json[1]["step_time_s"].is_null());
  results.rows[0].values[0] = "a,\"b\"";
  const auto lines = split(sweep_csv(results), '\n');
  EXPECT_EQ(lines[0],
            "parallelism.strategy,training.local_batch_size,status,exit,steps,step_time_s,"
            "tokens_per_s,scaling,mfu_pct,peak_memory_bytes,loss\r");
  EXPECT_EQ(lines[1], "\"a,\"\"b\"\"\",8,0,done,20,0.25,4096.4,1.0,12.5,1610612736,2.5\r");
  EXPECT_EQ(lines[2], "ddp,16,71,out of memory,0,,,,,,\r");
}

TEST(SweepReport, CurvesGoOverTheKeyThatHasNumbers) {
  SweepResults results = two_by_two();
  results.outcomes[3] = results.outcomes[2];
  results.outcomes[3].tokens_per_s = 1024;
  const auto plot = sweep_plot(results, SweepFigure::kTokensPerS);
  ASSERT_TRUE(plot);
  EXPECT_EQ(plot->x_name, "local_batch_size");
  EXPECT_TRUE(plot->whole_x);  // there is no half a sequence
  ASSERT_EQ(plot->curves.size(), 2u);
  EXPECT_EQ(plot->curves[0].label, "strategy = ddp");
  EXPECT_EQ(plot->curves[0].points.size(), 1u);  // the other one had not enough memory
  EXPECT_EQ(plot->curves[1].label, "strategy = full_shard");
  ASSERT_EQ(plot->curves[1].points.size(), 2u);
  EXPECT_EQ(plot->curves[1].points[0].x, 8);
  EXPECT_EQ(plot->curves[1].points[1].y, 1024);
  EXPECT_EQ(sweep_plot(results, SweepFigure::kPeakMemory)->curves[0].points[0].y, 1.5);

  results.axes[1].values = {"8", "many"};
  EXPECT_FALSE(sweep_plot(results, SweepFigure::kTokensPerS));
  results = two_by_two();
  results.outcomes.assign(4, RowOutcome{});
  EXPECT_FALSE(sweep_plot(results, SweepFigure::kTokensPerS));
}

}  // namespace
}  // namespace lockstep::cli
