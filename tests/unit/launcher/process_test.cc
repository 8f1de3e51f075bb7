#include "launcher/host/process.h"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/text.h"
#include "launcher/host/scratch_folder.h"
#include "tests/support/eventually.h"

namespace lockstep::launcher {
namespace {

using test_support::eventually;

class Process : public testing::Test {
 protected:
  WorkerProcess::Options shell(const std::string& script) const {
    WorkerProcess::Options options;
    options.program = "/bin/sh";
    options.arguments = {"-c", script};
    options.environment = {{"PATH", "/usr/bin:/bin"}, {"WORD", "two words"}};
    options.stdout_path = folder / "out";
    options.stderr_path = folder / "err";
    return options;
  }
  static ExitStatus wait_for(WorkerProcess& process) {
    std::optional<ExitStatus> status;
    EXPECT_TRUE(eventually([&] { return (status = process.try_reap()).has_value(); }));
    return status.value_or(ExitStatus{});
  }
  std::string contents(const char* name) const {
    return read_file(posix_file_system(), folder / name).value();
  }

  const ScratchFolder scratch = ScratchFolder::create().value();
  const std::filesystem::path folder = scratch.path();
};

TEST_F(Process, AppendsItsOutputAndTellsHowItEnded) {
  for (int i = 0; i < 2; ++i) {
    auto process = WorkerProcess::spawn(shell("echo \"$WORD\"; echo bad >&2; exit 7"));
    ASSERT_TRUE(process) << process.error().message;
    EXPECT_EQ(wait_for(*process).exit_code, 7);
  }
  EXPECT_EQ(contents("out"), "two words\ntwo words\n");
  EXPECT_EQ(contents("err"), "bad\nbad\n");
  auto process = WorkerProcess::spawn(shell("kill -9 $$"));
  EXPECT_EQ(wait_for(*process).signal, SIGKILL);
}

TEST_F(Process, AMissingProgramIsAnErrorNotAnExit) {
  auto options = shell("");
  options.program = folder / "nothing";
  const auto process = WorkerProcess::spawn(options);
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().code, Code::kNotFound);
  EXPECT_NE(process.error().message.find("nothing"), std::string::npos);
}

TEST_F(Process, StartsWithPlainSignalsAndASessionOfItsOwn) {
  StopSignals blocked;  // its mask and dispositions must not be inherited
  auto process = WorkerProcess::spawn(shell("exec sleep 3600"));
  ASSERT_TRUE(process);
  const pid_t pid = process->pid();
  EXPECT_EQ(::getsid(pid), pid);
  process->signal(SIGTERM);
  EXPECT_EQ(wait_for(*process).signal, SIGTERM);
  // In the shell's child that grep is, only USR1 and USR2 (bits 9 and 11) may be ignored.
  process = WorkerProcess::spawn(shell("grep -E 'SigBlk|SigIgn' /proc/self/status"));
  wait_for(*process);
  EXPECT_NE(contents("out").find("SigBlk:\t0000000000000000"), std::string::npos);
  const std::string out = contents("out");
  const size_t ignored = out.find("SigIgn:\t");
  ASSERT_NE(ignored, std::string::npos) << out;
  // 32 and 33 belong to the C library, which lets nobody touch them; make starts programs without.
  constexpr uint64_t kLibrarysOwn = 3ull << 31;
  EXPECT_EQ(std::stoull(out.substr(ignored + 8), nullptr, 16) & ~kLibrarysOwn, 0xa00u) << out;
}

// As nohup starts a program: HUP is ignored, and stays so in it and in its workers.
TEST_F(Process, ASignalThatIsIgnoredAtStartStaysIgnored) {
  const auto hup_before = std::signal(SIGHUP, SIG_IGN);
  const auto quit_before = std::signal(SIGQUIT, SIG_IGN);
  {
    StopSignals signals;
    ::raise(SIGHUP);
    ::raise(SIGQUIT);
    ::raise(SIGUSR2);
    wait_readable({signals.descriptor()}, test_support::kPatienceMs);
    EXPECT_EQ(signals.take(), std::vector<int>{SIGUSR2});
    auto process =
        WorkerProcess::spawn(shell("kill -HUP $$; kill -QUIT $$; kill -USR2 $$; exit 3"));
    ASSERT_TRUE(process);
    EXPECT_EQ(wait_for(*process).exit_code, 3);
  }
  std::signal(SIGHUP, hup_before);
  std::signal(SIGQUIT, quit_before);
}

TEST_F(Process, NoticesAStoppedProcessAndKillsItsChildren) {
  auto process = WorkerProcess::spawn(shell("sleep 3600 & echo $! ; kill -STOP $$; wait"));
  ASSERT_TRUE(process);
  EXPECT_TRUE(eventually([&] { return process->stopped(); }));
  const pid_t child = std::stoi(contents("out"));
  EXPECT_TRUE(is_alive(child));
  become_subreaper();
  process->kill_all();
  EXPECT_EQ(wait_for(*process).signal, SIGKILL);
  EXPECT_TRUE(eventually([&] {
    reap_orphans({});
    return !is_alive(child);
  }));
}

// As a debugger holds it: that is somebody's business.
TEST_F(Process, WhoIsHeldByADebuggerIsNotStopped) {
  auto process = WorkerProcess::spawn(shell("sleep 3600"));
  ASSERT_TRUE(process);
  const pid_t pid = process->pid();
  ASSERT_EQ(::ptrace(PTRACE_ATTACH, pid, nullptr, nullptr), 0) << std::strerror(errno);
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  EXPECT_TRUE(is_stopped(pid));
  EXPECT_FALSE(process->stopped());
  ASSERT_EQ(::ptrace(PTRACE_DETACH, pid, nullptr, SIGSTOP), 0) << std::strerror(errno);
  EXPECT_TRUE(eventually([&] { return process->stopped(); }));
}

TEST_F(Process, ADeathEndsTheWaitForIt) {
  constexpr int64_t kAnHourMs = 3'600'000;  // the test has less
  auto process = WorkerProcess::spawn(shell("exec sleep 3600"));
  ASSERT_TRUE(process);
  process->signal(SIGKILL);
  wait_readable({process->pidfd()}, kAnHourMs);
  const auto status = process->try_reap();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->signal, SIGKILL);
}

TEST_F(Process, DestructionLeavesNothing) {
  pid_t pid;
  {
    auto process = WorkerProcess::spawn(shell("exec sleep 3600"));
    pid = process->pid();
  }
  EXPECT_FALSE(is_alive(pid));
}

TEST_F(Process, StopSignalsAreReadInsteadOfDelivered) {
  StopSignals signals;
  ::raise(SIGTERM);
  wait_readable({signals.descriptor()}, test_support::kPatienceMs);
  EXPECT_EQ(signals.take(), std::vector<int>{SIGTERM});
  EXPECT_TRUE(signals.take().empty());
}

}  // namespace
}  // namespace lockstep::launcher
