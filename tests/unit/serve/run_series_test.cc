// A run's steps as they are logged, torn, redone and replaced.
#include "cli/serve/run_series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/text.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using testing::ElementsAre;

std::string line(int64_t step, double loss, int64_t generation = 1, double t = 0) {
  return text(R"({"step":)", step, R"(,"loss":)", loss, R"(,"tokens":100,"step_time_s":2,"t":)",
              t > 0 ? t : 1000 + 2 * static_cast<double>(step), R"(,"world_size":)", 4 - generation,
              R"(,"generation":)", generation, "}\n");
}

TEST(RunSeries, StepsTokensAndSeconds) {
  RunSeries series;
  series.add(line(1, 4) + line(2, 3) + line(3, 2.5));
  EXPECT_THAT(series.steps(), ElementsAre(1, 2, 3));
  EXPECT_THAT(series.column(Field::kLoss), ElementsAre(4, 3, 2.5));
  EXPECT_THAT(series.axis(Axis::kSteps), ElementsAre(1, 2, 3));
  EXPECT_THAT(series.axis(Axis::kTokens), ElementsAre(100, 200, 300));
  EXPECT_THAT(series.axis(Axis::kSeconds), ElementsAre(2, 4, 6)) << "from the first step's begin";
  EXPECT_EQ(series.last(Field::kLoss), 2.5);
  EXPECT_TRUE(std::isnan(series.last(Field::kValidationLoss)));
}

TEST(RunSeries, BytesMayComeInAnyPieces) {
  const std::string all = line(1, 4) + line(2, 3) + line(3, 2);
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    RunSeries series;
    series.add(all.substr(0, cut));
    series.add(all.substr(cut));
    EXPECT_THAT(series.column(Field::kLoss), ElementsAre(4, 3, 2)) << cut;
    EXPECT_EQ(series.damaged_lines(), 0) << cut;
  }
}

TEST(RunSeries, TheLastRecordOfARedoneStepCounts) {
  RunSeries series;
  series.add(line(1, 4, 1) + line(2, 3, 1) + line(3, 2, 1) + line(2, 3.5, 2, 1030) +
             line(4, 1, 2, 1040));
  EXPECT_THAT(series.steps(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(series.column(Field::kLoss), ElementsAre(4, 3.5, 2, 1));
  EXPECT_EQ(series.redone_steps(), 1);
  ASSERT_EQ(series.starts().size(), 2u);
  EXPECT_EQ(series.starts()[1].generation, 2);
  EXPECT_EQ(series.starts()[1].step, 2);
  EXPECT_EQ(series.starts()[1].world_size, 2);
  // Step 3 is older than step 2, which was redone: time does not go back.
  EXPECT_THAT(series.axis(Axis::kSeconds), ElementsAre(2, 30, 30, 40));
  series.add(line(0, 9, 2, 1050));
  EXPECT_THAT(series.steps(), ElementsAre(0, 1, 2, 3, 4));
}

TEST(RunSeries, DamagedLinesArePassedOverAndCounted) {
  RunSeries series({.max_steps = 3, .max_line_bytes = 200});
  series.add(line(1, 4) + "{\"step\":2,\"lo" + line(3, 2) + "\n" + std::string(500, 'x') + "\n");
  series.add(line(4, 1) + line(5, 1) + line(6, 1));
  EXPECT_THAT(series.steps(), ElementsAre(1, 4, 5));
  EXPECT_EQ(series.damaged_lines(), 2);
  EXPECT_EQ(series.passed_over_steps(), 1);
}

TEST(RunSeries, ALineThatIsTooLongIsDamagedHoweverItComes) {
  RunSeries series({.max_line_bytes = 200});
  series.add(std::string(150, 'x'));
  series.add(std::string(150, 'x'));
  series.add(line(1, 4));
  series.add(line(2, 3));
  EXPECT_THAT(series.steps(), ElementsAre(2));
  EXPECT_EQ(series.damaged_lines(), 1);
}

class FollowedFile : public testing::Test {
 protected:
  void write(const std::string& contents) { ASSERT_TRUE(publish_file(fs_, path_, contents).ok()); }
  FileSystem& fs_ = posix_file_system();
  test_support::TempDir dir_;
  const std::filesystem::path path_ = dir_ / "metrics.jsonl";
};

TEST_F(FollowedFile, IsReadOn) {
  RunSeries series;
  EXPECT_EQ(series.follow(fs_, path_).error().code, Code::kNotFound);
  const std::string third = line(3, 2);
  write(line(1, 4) + line(2, 3) + third.substr(0, 20));
  ASSERT_TRUE(series.follow(fs_, path_).ok());
  EXPECT_THAT(series.steps(), ElementsAre(1, 2)) << "the third one is being written";
  write(line(1, 4) + line(2, 3) + third);
  ASSERT_TRUE(series.follow(fs_, path_).ok());
  EXPECT_THAT(series.steps(), ElementsAre(1, 2, 3));
  EXPECT_EQ(series.redone_steps(), 0) << "nothing was read twice";
  EXPECT_EQ(series.damaged_lines(), 0);
}

TEST_F(FollowedFile, IsReadAnewWhenItWasReplaced) {
  RunSeries series;
  write(line(1, 4) + "damaged\n" + line(2, 3));
  ASSERT_TRUE(series.follow(fs_, path_).ok());
  EXPECT_EQ(series.damaged_lines(), 1);
  // A resume set the damaged line aside, and more was logged since: the file may be longer.
  write(line(1, 4) + line(2, 3) + line(3, 2) + line(4, 1));
  ASSERT_TRUE(series.follow(fs_, path_).ok());
  EXPECT_THAT(series.steps(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(series.damaged_lines(), 0);
  EXPECT_EQ(series.redone_steps(), 0);
  write(line(1, 5));
  ASSERT_TRUE(series.follow(fs_, path_).ok());
  EXPECT_THAT(series.column(Field::kLoss), ElementsAre(5));
}

TEST_F(FollowedFile, ACallReadsSoMuchAndTheNextOneGoesOn) {
  const std::string one = line(1, 4);
  RunSeries series({.max_read_bytes = std::ssize(one) + 5});
  write(one + line(2, 3));
  ASSERT_TRUE(series.follow(fs_, path_).ok());
  EXPECT_THAT(series.steps(), ElementsAre(1));
  ASSERT_TRUE(series.follow(fs_, path_).ok());
  EXPECT_THAT(series.steps(), ElementsAre(1, 2));
}

}  // namespace
}  // namespace lockstep::cli
