#include "worker_link/progress_page.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "base/file_system.h"
#include "tests/support/temp_dir.h"

namespace lockstep {
namespace {

using test_support::TempDir;

TEST(ProgressPage, StartsEmpty) {
  TempDir dir;
  const auto page = ProgressPage::open(dir / "page").value();
  for (const Progress& progress : {page->read(), ProgressPage::in_memory()->read()}) {
    EXPECT_EQ(progress.step, 0);
    EXPECT_EQ(progress.phase, Phase::kStart);
    EXPECT_EQ(progress.save_phase, SavePhase::kIdle);
    EXPECT_EQ(progress.committed_step, -1);
    EXPECT_EQ(progress.snapshot_step, -1);
    EXPECT_EQ(progress.unix_ns, 0);
  }
}

TEST(ProgressPage, AnotherMappingSeesEveryStore) {
  TempDir dir;
  const auto agent = ProgressPage::open(dir / "page").value();
  const auto worker = ProgressPage::open(dir / "page").value();
  worker->set_phase(12, Phase::kUpdate);
  worker->set_save_phase(SavePhase::kVoting);
  worker->set_committed_step(10);
  worker->set_snapshot_step(11);
  worker->set_first_step(9);
  const Progress progress = agent->read();
  EXPECT_EQ(progress.first_step, 9);
  EXPECT_EQ(progress.step, 12);
  EXPECT_EQ(progress.phase, Phase::kUpdate);
  EXPECT_EQ(progress.save_phase, SavePhase::kVoting);
  EXPECT_EQ(progress.committed_step, 10);
  EXPECT_EQ(progress.snapshot_step, 11);
  EXPECT_GT(progress.unix_ns, 0);
}

TEST(ProgressPage, OutlivesTheWorkerThatIsKilled) {
  TempDir dir;
  const auto agent = ProgressPage::open(dir / "page").value();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto worker = ProgressPage::open(dir / "page");
    if (worker.ok()) worker.value()->set_phase(7, Phase::kSave);
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(agent->read().step, 7);
  EXPECT_EQ(agent->read().phase, Phase::kSave);
}

// A child takes `points` and says everything that a worker says in a step or two.
void say_all(const std::filesystem::path& path, const std::vector<std::string>& points) {
  const auto worker = ProgressPage::open(path).value();
  if (!worker->stop_at(points, 2, 1).ok()) ::_exit(1);
  for (int64_t step = 1; step <= 9; ++step) {
    for (const Phase phase : {Phase::kStep, Phase::kUpdate, Phase::kSave})
      worker->set_phase(step, phase);
    for (const SavePhase phase : {SavePhase::kStaging, SavePhase::kIdle})
      worker->set_save_phase(phase);
    if (step % 4 == 0) worker->set_snapshot_step(step - 1);
  }
  ::_exit(0);
}

// The page when the child had stopped itself, which it does once.
std::optional<Progress> stopped_at(const std::vector<std::string>& points) {
  TempDir dir;
  const auto agent = ProgressPage::open(dir / "page").value();
  const pid_t child = ::fork();
  if (child == 0) say_all(dir / "page", points);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
  std::optional<Progress> progress;
  if (WIFSTOPPED(status)) {
    progress = agent->read();
    ::kill(child, SIGCONT);
    EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  return progress;
}

TEST(ProgressPage, StopsItsProcessAtANamedMoment) {
  auto at = stopped_at({"1:1:step:1", "2:0:step:1", "2:1:update:5"});
  ASSERT_TRUE(at);
  EXPECT_EQ(at->step, 5);
  EXPECT_EQ(at->phase, Phase::kUpdate);
  at = stopped_at({"2:1:staging:3"});
  ASSERT_TRUE(at);
  EXPECT_EQ(at->step, 3);
  EXPECT_EQ(at->save_phase, SavePhase::kStaging);
  at = stopped_at({"2:1:snapshot:4"});
  ASSERT_TRUE(at);
  EXPECT_EQ(at->step, 8);
  EXPECT_EQ(at->snapshot_step, 7);
  at = stopped_at({"2:1:start:0"});
  ASSERT_TRUE(at);
  EXPECT_EQ(at->unix_ns, 0);
}

TEST(ProgressPage, DoesNotStopAtAnotherWorkersMomentOrAtOneThatNeverComes) {
  for (const char* other : {"3:1:step:1", "2:0:step:1", "2:1:step:10", "2:1:voting:0"})
    EXPECT_FALSE(stopped_at({other})) << other;
}

TEST(ProgressPage, RefusesAStopPointThatCannotComeTrue) {
  const auto page = ProgressPage::in_memory();
  for (const char* point : {"2:1:steps:3", "2:1:step", "1:step:3", "2:1:step:many", "2:1:step:"}) {
    const auto taken = page->stop_at({point}, 9, 9);
    ASSERT_FALSE(taken.ok()) << point;
    EXPECT_EQ(taken.error().code, Code::kConfig);
    EXPECT_NE(taken.error().message.find(point), std::string::npos) << taken.error().message;
  }
}

TEST(ProgressPage, PathThatCannotBeOpenedIsNamed) {
  const auto page = ProgressPage::open("/proc/no/page");
  ASSERT_FALSE(page.ok());
  EXPECT_EQ(page.error().code, Code::kIo);
  EXPECT_NE(page.error().message.find("/proc/no/page"), std::string::npos);
}

TEST(ProgressPage, WhoLooksAtOneChangesNothing) {
  const test_support::TempDir dir;
  const auto worker = ProgressPage::open(dir / "page").value();
  const auto status = ProgressPage::look_at(dir / "page");
  ASSERT_TRUE(status.ok()) << status.error().message;
  worker->set_phase(7, Phase::kUpdate);
  EXPECT_EQ(status.value()->read().step, 7);

  EXPECT_EQ(ProgressPage::look_at(dir / "none").error().code, Code::kIo);
  EXPECT_FALSE(std::filesystem::exists(dir / "none"));
  ASSERT_TRUE(publish_file(posix_file_system(), dir / "other", "seven bytes, or so").ok());
  EXPECT_EQ(ProgressPage::look_at(dir / "other").error().code, Code::kCorrupt);
  EXPECT_EQ(std::filesystem::file_size(dir / "other"), 18u);
  std::filesystem::create_symlink(dir / "page", dir / "link");
  EXPECT_EQ(ProgressPage::look_at(dir / "link").error().code, Code::kIo);
  EXPECT_EQ(ProgressPage::look_at(dir.path()).error().code, Code::kCorrupt);
}

TEST(ProgressPage, EveryPhaseHasAName) {
  EXPECT_STREQ(phase_name(Phase::kDone), "done");
  EXPECT_STREQ(save_phase_name(SavePhase::kFailed), "failed");
  EXPECT_STREQ(phase_name(static_cast<Phase>(99)), "unknown");
}

}  // namespace
}  // namespace lockstep
