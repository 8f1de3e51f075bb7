#include "worker_link/progress_page.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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
  const Progress progress = agent->read();
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

TEST(ProgressPage, PathThatCannotBeOpenedIsNamed) {
  const auto page = ProgressPage::open("/proc/no/page");
  ASSERT_FALSE(page.ok());
  EXPECT_EQ(page.error().code, Code::kIo);
  EXPECT_NE(page.error().message.find("/proc/no/page"), std::string::npos);
}

TEST(ProgressPage, EveryPhaseHasAName) {
  EXPECT_STREQ(phase_name(Phase::kDone), "done");
  EXPECT_STREQ(save_phase_name(SavePhase::kFailed), "failed");
  EXPECT_STREQ(phase_name(static_cast<Phase>(99)), "unknown");
}

}  // namespace
}  // namespace lockstep
