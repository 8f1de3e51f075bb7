// Real signals on a real disk: SIGKILL in the middle of a save, and a process that was stopped,
// given up, and wakes. crash_matrix_test.cc has every call; here is a sample of them.
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kPrevious = 2, kNext = 3;

EngineOptions options_of(const std::filesystem::path& folder, int64_t generation) {
  EngineOptions options = options_in(folder, generation);
  options.retention.keep_latest_k = 2;
  return options;
}

void save_first_two(const std::filesystem::path& folder) {
  World first(disk(), options_of(folder, 1), odd_model(), 3);
  for (int64_t step = 1; step <= kPrevious; ++step) ASSERT_TRUE(first.save(step)[0].committed);
}

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

// Loads at another world size, then trains on in the next generation.
int64_t recovered_step(const std::filesystem::path& folder, int world_size) {
  int64_t step = -1;
  for (int rank = 0; rank < world_size; ++rank) {
    RankState state = state_of(odd_model(), rank, world_size);
    const auto loaded = newest_valid(disk(), folder, state.targets(), 1);
    if (!loaded.ok()) {
      ADD_FAILURE() << loaded.error().message;
      return -1;
    }
    EXPECT_EQ(loaded.value().fallbacks, 0);
    step = loaded.value().manifest.step;
    EXPECT_EQ(state.difference(step), "");
    const auto problems = verify(disk(), loaded.value().directory, 1);
    EXPECT_TRUE(problems.ok() && problems.value().empty());
  }
  World next(disk(), options_of(folder, 3), odd_model(), world_size);
  EXPECT_TRUE(next.save(kNext + 1)[0].committed);
  const auto entries = list_checkpoints(disk(), folder).value();
  for (const auto& entry : entries)
    EXPECT_TRUE(entry.committed) << entry.directory << " is left";
  return step;
}

void kill_at_some_calls(Fault fault, int64_t stride) {
  const TempDir dir;
  save_first_two(dir / "start");
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
    const int64_t step = recovered_step(folder, static_cast<int>(k % 4) + 1);
    EXPECT_TRUE(step == kPrevious || step == kNext) << step;
    EXPECT_TRUE(killed || step == kNext) << "no kill, yet step " << step;
    ++(step == kNext ? after : before);
    std::filesystem::remove_all(folder);
  }
  EXPECT_GT(before, 3);
  EXPECT_GT(after, 2);
}

TEST(SaveCrash, KilledBeforeEveryThirdCall) { kill_at_some_calls(Fault::kKill, 3); }
TEST(SaveCrash, KilledInTheMiddleOfWrites) { kill_at_some_calls(Fault::kShortWriteKill, 4); }

// Stopped at call k, given up, replaced by generation 3, and then it goes on.
TEST(Zombie, OfAnOlderGenerationCommitsNothingAndHarmsNothing) {
  const TempDir dir;
  save_first_two(dir / "start");
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
