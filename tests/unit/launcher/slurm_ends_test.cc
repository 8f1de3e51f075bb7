// What a launch said at its end, for the batch script that asks.
#include "launcher/slurm/ends.h"

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace lockstep::launcher::slurm {
namespace {

TEST(SlurmEnds, TheWordOfThisLaunchAndNoOther) {
  const test_support::TempDir folder;
  FileSystem& files = posix_file_system();
  const auto run = folder.path() / "run";
  EXPECT_EQ(read_end(files, run, "7.0.1"), std::nullopt);
  ASSERT_TRUE(write_end(files, run, "7.0.1", 75));
  EXPECT_EQ(read_end(files, run, "7.0.1"), 75);
  EXPECT_EQ(read_end(files, run, "7.0.2"), std::nullopt) << "an earlier launch said it";
  ASSERT_TRUE(write_end(files, run, "7.0.2", 0));
  ASSERT_TRUE(write_end(files, run, "7.0.2", 75));
  EXPECT_EQ(read_end(files, run, "7.0.2"), 0) << "a node that woke up after the end";
  ASSERT_TRUE(publish_file(files, run / "slurm_end.json", "{"));
  EXPECT_EQ(read_end(files, run, "7.0.2"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::launcher::slurm
