// SIGKILL at every call that a save makes to the file system, from the first mkdir over the commit
// to the last file that retention removes. What is left must be step N or N-1, whole and exact.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/crash/unsynced_file_system.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/world.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::FaultyFileSystem;
using lockstep::test_support::Fault;
using lockstep::test_support::Op;
using lockstep::test_support::TempDir;
using lockstep::test_support::UnsyncedFileSystem;
using test_support::odd_model;
using test_support::options_in;
using test_support::RankState;
using test_support::state_of;
using test_support::World;

constexpr int64_t kPrevious = 2, kNext = 3;

EngineOptions options_of(const std::filesystem::path& folder, int64_t generation) {
  EngineOptions options = options_in(folder, generation);
  options.keep_latest_k = 2;
  return options;
}

// In a child: saves kNext in generation 2 and is killed at call `k`. True when it was.
bool killed_while_saving(const std::filesystem::path& folder, FileSystem& behind, int64_t k,
                         Fault fault) {
  const pid_t child = ::fork();
  if (child == 0) {
    FaultyFileSystem disk(behind);
    World world(disk, options_of(folder, 2), odd_model(), 2);
    disk.set_plan({.op = Op::kAny, .at_call = k, .fault = fault});
    const auto reports = world.save(kNext);
    ::_exit(reports.size() == 2 && reports[0].committed && reports[1].committed ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  EXPECT_TRUE(killed || status == 0) << "a save without a kill must succeed";
  return killed;
}

// Loads at another world size, then trains on in the next generation.
int64_t recovered_step(const std::filesystem::path& folder, int64_t k) {
  const int world_size = static_cast<int>(k % 4) + 1;
  int64_t step = -1;
  for (int rank = 0; rank < world_size; ++rank) {
    RankState state = state_of(odd_model(), rank, world_size);
    const auto loaded = newest_valid(posix_file_system(), folder, state.targets(), 1);
    if (!loaded.ok()) {
      ADD_FAILURE() << "call " << k << ": " << loaded.error().message;
      return -1;
    }
    EXPECT_EQ(loaded.value().fallbacks, 0) << "call " << k;
    step = loaded.value().manifest.step;
    EXPECT_EQ(state.difference(step), "") << "call " << k;
    const auto problems = verify(posix_file_system(), loaded.value().directory, 1);
    EXPECT_TRUE(problems.ok() && problems.value().empty()) << "call " << k;
  }
  World next(posix_file_system(), options_of(folder, 3), odd_model(), world_size);
  EXPECT_TRUE(next.save(kNext + 1)[0].committed);
  const auto entries = list_checkpoints(posix_file_system(), folder).value();
  for (const auto& entry : entries)
    EXPECT_TRUE(entry.committed) << "call " << k << " left " << entry.directory;
  return step;
}

void kill_at_every_call(Fault fault, bool lose_unsynced, int64_t stride) {
  const TempDir dir;
  {
    World first(posix_file_system(), options_of(dir / "start", 1), odd_model(), 3);
    for (int64_t step = 1; step <= kPrevious; ++step) ASSERT_TRUE(first.save(step)[0].committed);
  }
  int64_t before = 0, after = 0;
  bool killed = true;
  for (int64_t k = 1; killed; k += stride) {
    ASSERT_LT(k, 2000);
    const auto folder = dir / text("run_", k);
    std::filesystem::copy(dir / "start", folder, std::filesystem::copy_options::recursive);
    UnsyncedFileSystem unsynced(posix_file_system());
    FileSystem& behind = lose_unsynced ? static_cast<FileSystem&>(unsynced) : posix_file_system();
    killed = killed_while_saving(folder, behind, k, fault);
    const int64_t step = recovered_step(folder, k);
    EXPECT_TRUE(step == kPrevious || step == kNext) << "call " << k << " left step " << step;
    EXPECT_TRUE(killed || step == kNext) << "no kill, yet step " << step;
    ++(step == kNext ? after : before);
    std::filesystem::remove_all(folder);
  }
  EXPECT_GT(before, 10);
  EXPECT_GT(after, 3);
}

TEST(SaveCrash, KilledBeforeEachCall) { kill_at_every_call(Fault::kKill, false, 1); }
TEST(SaveCrash, KilledInTheMiddleOfEachWrite) {
  kill_at_every_call(Fault::kShortWriteKill, false, 2);
}
TEST(SaveCrash, KilledBeforeEachCallAndWhatWasNotSyncedIsLost) {
  kill_at_every_call(Fault::kKill, true, 1);
}

}  // namespace
}  // namespace lockstep::checkpoint
