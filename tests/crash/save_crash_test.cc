// Real signals on a real disk: SIGKILL in the middle of a save, and a process that was stopped,
// given up, and wakes. crash_matrix_test.cc has every call; here is a sample of them.
#include <sys/wait.h>
#include <unistd.h>

#include "tests/crash/rank_processes.h"

namespace lockstep::checkpoint {
namespace {

using processes::kNext;
using processes::kPrevious;
using processes::options_of;
using processes::recovered_step;
using processes::save_first_two;

// A child saves kNext in generation 2 and meets `fault` at call `k`. Exits with 0 when committed.
pid_t start_save(const std::filesystem::path& folder, int64_t k, Fault fault) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  FaultyFileSystem faulty(disk());
  World world(faulty, options_of(folder, 2), odd_model(), 2);
  faulty.set_plan({.op = Op::kAny, .at_call = k, .fault = fault});
  const auto reports = world.save(kNext);
  ::_exit(reports.size() == 2 && reports[0].committed && reports[1].committed ? 0 : 1);
}

int status_of(pid_t child, int options = 0) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, options), child);
  return status;
}

void kill_at_some_calls(Fault fault, int64_t stride) {
  const TempDir dir;
  save_first_two(dir / "start", odd_model());
  int64_t before = 0, after = 0;
  bool killed = true;
  for (int64_t k = 1; killed; k += stride) {
    ASSERT_LT(k, 2000);
    SCOPED_TRACE(text("call ", k));
    const auto folder = dir / text("run_", k);
    std::filesystem::copy(dir / "start", folder, std::filesystem::copy_options::recursive);
    const int status = status_of(start_save(folder, k, fault));
    killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    EXPECT_TRUE(killed || status == 0) << "a save without a kill must succeed";
    const int64_t step = recovered_step(folder, odd_model(), static_cast<int>(k % 4) + 1);
    EXPECT_TRUE(step == kPrevious || step == kNext) << step;
    EXPECT_TRUE(killed || step == kNext) << "no kill, yet step " << step;
    ++(step == kNext ? after : before);
    std::filesystem::remove_all(folder);
  }
  EXPECT_GT(before, 3);
  EXPECT_GT(after, 2);
}

TEST(SaveCrash, RanksOfAFileKilledAtEachCallAndWord) {
  processes::kill_ranks_of_a_file(odd_model(), {{Fault::kKill}});
}
TEST(SaveCrash, KilledBeforeEveryThirdCall) { kill_at_some_calls(Fault::kKill, 3); }
TEST(SaveCrash, KilledInTheMiddleOfWrites) { kill_at_some_calls(Fault::kShortWriteKill, 4); }

// Stopped at call k, given up, replaced by generation 3, and then it goes on.
TEST(Zombie, OfAnOlderGenerationCommitsNothingAndHarmsNothing) {
  const TempDir dir;
  save_first_two(dir / "start", odd_model());
  bool stopped = true;
  int64_t tried = 0;
  for (int64_t k = 1; stopped; k += 4, ++tried) {
    ASSERT_LT(k, 2000);
    SCOPED_TRACE(text("call ", k));
    const auto folder = dir / text("run_", k);
    std::filesystem::copy(dir / "start", folder, std::filesystem::copy_options::recursive);
    const pid_t zombie = start_save(folder, k, Fault::kPause);
    stopped = WIFSTOPPED(status_of(zombie, WUNTRACED));
    if (!stopped) break;
    const bool had_committed = list_checkpoints(disk(), folder).value().front().step == kNext &&
                               list_checkpoints(disk(), folder).value().front().committed;
    World next(disk(), options_of(folder, 3), odd_model(), 3);
    const bool before_its_save = tried % 2 == 0;  // it wakes before the new one's save, or after
    if (before_its_save) ::kill(zombie, SIGCONT);
    EXPECT_TRUE(next.save(kNext + 1)[0].committed);
    if (!before_its_save) ::kill(zombie, SIGCONT);
    const int status = status_of(zombie);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_TRUE(had_committed || WEXITSTATUS(status) == 1) << "it committed";
    const auto entries = list_checkpoints(disk(), folder).value();
    for (const auto& entry : entries)
      EXPECT_TRUE(entry.generation != 2 || had_committed || !entry.committed) << entry.directory;
    RankState state = state_of(odd_model(), 0, 1);
    const auto loaded = newest_valid(disk(), folder, state.targets(), 1);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded.value().manifest.step, kNext + 1);
    EXPECT_EQ(loaded.value().fallbacks, 0);
    EXPECT_EQ(state.difference(kNext + 1), "");
    EXPECT_TRUE(next.save(kNext + 2)[0].committed);
  }
  EXPECT_GT(tried, 5);
}

}  // namespace
}  // namespace lockstep::checkpoint
