// The config that a run has written, as the words that give it again.
#include "cli/shared/run_args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

// A run of an older version can still be shown, exported and sampled from.
TEST(RunArgs, KeysThatAreGoneAreLeftOut) {
  const test_support::TempDir run;
  ASSERT_TRUE(publish_file(posix_file_system(), run / "run_args.json",
                           R"({"config": {"training": {"steps": 7}, "job": {"dump_folder": "x"},
                               "checkpoint": {"max_failures": 3, "interval": 5}}})")
                  .ok());
  const auto flags = run_flags(posix_file_system(), run.path());
  ASSERT_TRUE(flags.ok()) << flags.error().message;
  const auto parsed = parse_config("", flags.value());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed.value().config.training.steps, 7);
  EXPECT_EQ(parsed.value().config.checkpoint.interval, 5);
}

TEST(RunArgs, ListsAreAsTheRunHadThem) {
  const test_support::TempDir run;
  ASSERT_TRUE(
      publish_file(
          posix_file_system(), run / "run_args.json",
          R"({"config": {"data": {"sources": ["/a b,c", "[d]", ""], "weights": [3, 2, 1]}}})")
          .ok());
  const auto flags = run_flags(posix_file_system(), run.path());
  ASSERT_TRUE(flags.ok()) << flags.error().message;
  const auto parsed = parse_config("", flags.value());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_THAT(parsed.value().config.data.sources, testing::ElementsAre("/a b,c", "[d]", ""));
  EXPECT_THAT(parsed.value().config.data.weights, testing::ElementsAre(3, 2, 1));
}

}  // namespace
}  // namespace lockstep::cli
