// Which folders are runs, and what is passed over.
#include "cli/shared/run_listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/text.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
namespace fs = std::filesystem;

class RunListingTest : public testing::Test {
 protected:
  void make_run(const fs::path& folder) {
    fs::create_directories(folder);
    ASSERT_TRUE(publish_file(fs_, folder / "run_args.json", "{}").ok());
  }
  std::vector<std::string> ids(const ListingLimits& limits = {}) {
    auto listed = list_runs(fs_, root_, limits);
    EXPECT_TRUE(listed.ok());
    std::vector<std::string> all;
    if (!listed.ok()) return all;
    listing_ = std::move(listed).value();
    for (const FoundRun& run : listing_.runs) all.push_back(run.id);
    return all;
  }

  FileSystem& fs_ = posix_file_system();
  test_support::TempDir dir_;
  const fs::path root_ = dir_ / "results";
  RunListing listing_;
};

TEST_F(RunListingTest, RunsStandInFoldersOfFolders) {
  make_run(root_ / "training/b");
  make_run(root_ / "training/a");
  make_run(root_ / "training/a/checkpoints/inside");  // a run is not looked into
  make_run(root_ / "sweep/lr/1e-3");
  make_run(root_ / ".hidden/run");
  fs::create_directories(root_ / "empty");
  ASSERT_TRUE(publish_file(fs_, root_ / "notes.txt", "x").ok());
  EXPECT_THAT(ids(), ElementsAre("sweep/lr/1e-3", "training/a", "training/b"));
  EXPECT_FALSE(listing_.cut);
  EXPECT_EQ(listing_.links, 0);
  ASSERT_NE(listing_.find("training/a"), nullptr);
  EXPECT_EQ(listing_.find("training/a")->folder, root_ / "training/a");
  for (const char* id : {"", ".", "..", "training", "training/a/", "training/../training/a",
                         "training/a/checkpoints/inside", "/etc"})
    EXPECT_EQ(listing_.find(id), nullptr) << id;
  EXPECT_THAT(ids({.depth = 2}), ElementsAre("training/a", "training/b"));
}

TEST_F(RunListingTest, ARunsFolderIsTheOneRun) {
  make_run(root_);
  EXPECT_THAT(ids(), ElementsAre("results"));
  EXPECT_EQ(list_runs(fs_, dir_ / "nowhere").error().code, Code::kNotFound);
}

TEST_F(RunListingTest, NothingIsReachedThroughALink) {
  make_run(dir_ / "outside/run");
  make_run(root_ / "run");
  make_run(root_ / "linked_file");
  fs::create_symlink(dir_ / "outside", root_ / "away");
  fs::create_symlink(root_ / "run", root_ / "latest");
  fs::create_symlink(dir_ / "outside/run/run_args.json", root_ / "linked_file/metrics.jsonl");
  EXPECT_THAT(ids(), ElementsAre("run"));
  EXPECT_EQ(listing_.links, 3);
}

TEST_F(RunListingTest, APipeIsNoFileOfARun) {
  make_run(root_ / "run");
  ASSERT_EQ(::mkfifo((root_ / "run/metrics.jsonl").c_str(), 0600), 0);
  EXPECT_THAT(ids(), ElementsAre());
}

TEST_F(RunListingTest, LimitsAreSaid) {
  for (int i = 0; i < 5; ++i) make_run(root_ / text("run", i));
  EXPECT_THAT(ids({.runs = 3}), ElementsAre("run0", "run1", "run2"));
  EXPECT_TRUE(listing_.cut);
  EXPECT_THAT(ids({.runs = 5}), testing::SizeIs(5));
  EXPECT_FALSE(listing_.cut);
  EXPECT_THAT(ids({.entries = 2}), ElementsAre("run0", "run1"));
  EXPECT_TRUE(listing_.cut);
}

}  // namespace
}  // namespace lockstep::cli
