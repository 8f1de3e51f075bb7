// SIGKILL at every call that a memory snapshot makes, and in the middle of each write: what is left
// in memory is the snapshot before or the new one, whole and exact, at another world size too.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/memory_world.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::Fault;
using lockstep::test_support::FaultyFileSystem;
using lockstep::test_support::Op;
using lockstep::test_support::TempDir;
using test_support::find_snapshots;
using test_support::Found;
using test_support::load_at;
using test_support::MemoryWorld;

// In a child: two snapshots, then one that is killed at call `k`. True when it was.
bool killed_in_third(const std::filesystem::path& root, int64_t k, Fault fault) {
  const pid_t child = ::fork();
  if (child == 0) {
    FaultyFileSystem disk(posix_file_system());
    MemoryWorld world(disk, root, {0, 1}, 1, /*buddy=*/true);
    world.snapshot(2);
    world.snapshot(4);
    disk.set_plan({.op = Op::kAny, .at_call = k, .fault = fault});
    world.snapshot(6);
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  EXPECT_TRUE(killed || status == 0) << "a snapshot without a kill must succeed";
  return killed;
}

void kill_everywhere(Fault fault, int64_t stride) {
  int64_t before = 0, after = 0;
  bool killed = true;
  for (int64_t k = 1; killed; k += stride) {
    ASSERT_LT(k, 2000);
    const TempDir dir;
    killed = killed_in_third(dir.path(), k, fault);
    const Found found = find_snapshots(dir.path(), 2);
    // Half of the last word reads as damage; short of that, torn is not damaged.
    EXPECT_TRUE(fault != Fault::kKill || found.problems.empty()) << "call " << k;
    ASSERT_FALSE(found.snapshots.empty()) << "call " << k;
    const int64_t step = found.snapshots[0].whole.step;
    EXPECT_TRUE(step == 6 || (killed && step == 4)) << "call " << k << " left step " << step;
    EXPECT_EQ(load_at(found.snapshots[0], static_cast<int>(k % 4) + 1), "") << "call " << k;
    ++(step == 6 ? after : before);
  }
  EXPECT_GT(before, 10);
  EXPECT_GT(after, 1);
}

TEST(MemoryCrash, KilledBeforeEachCall) { kill_everywhere(Fault::kKill, 1); }
TEST(MemoryCrash, KilledInTheMiddleOfEachWrite) { kill_everywhere(Fault::kShortWriteKill, 2); }

}  // namespace
}  // namespace lockstep::checkpoint
