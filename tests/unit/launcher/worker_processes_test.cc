// Workers of one generation as real processes: what is known of one that was killed.
#include "launcher/agent/worker_processes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <functional>

#include "launcher/host/run_files.h"
#include "launcher/host/scratch_folder.h"
#include "tests/support/eventually.h"

namespace lockstep::launcher {
namespace {

using testing::ElementsAre;

class KilledWorker : public testing::Test {
 protected:
  KilledWorker() {
    options.worker_program = LOCKSTEP_FAKE_WORKER;
    options.worker_arguments = {"100000"};
    options.dump_folder = folder / "run";
    options.environment = {{"FAKE_WORKER_STATE", (folder / "state").string()}};
    options.kernel_root = folder;
    std::filesystem::create_directories(folder / "proc");
    std::filesystem::create_directories(options.dump_folder / "logs");
    says_ended(3);
  }
  void says_ended(int count) const {
    std::ofstream(folder / "proc" / "vmstat") << "nr_free_pages 5\noom_kill " << count << "\n";
  }
  // How the worker of a generation of one ends, that is killed when `before_kill` was called.
  WorkerExit killed(const std::function<void()>& before_kill) {
    WorkerProcesses workers(posix_file_system(), system_clock(), options, folder / "scratch");
    WorkerOrders orders;
    orders.local_world_size = 1;
    orders.generation = 1;
    orders.nonce = "abcdef";
    EXPECT_TRUE(workers.start(orders).ok());
    before_kill();
    ::kill(workers.pids().at(0), SIGKILL);
    std::vector<WorkerExit> exits;
    EXPECT_TRUE(test_support::eventually([&] { return !(exits = workers.reap()).empty(); }));
    return exits.empty() ? WorkerExit() : exits.front();
  }

  const ScratchFolder scratch = ScratchFolder::create().value();
  const std::filesystem::path folder = scratch.path();
  AgentOptions options;
};

TEST_F(KilledWorker, IsOutOfMemoryWhereTheKernelEndedOneMeanwhile) {
  const WorkerExit ended = killed([&] { says_ended(4); });
  EXPECT_EQ(ended.signal, SIGKILL);
  EXPECT_TRUE(ended.no_memory);
  EXPECT_EQ(failure_status(ended), kExitNoMemory);
  EXPECT_FALSE(killed([] {}).no_memory) << "it ended one before this worker began";
}

TEST_F(KilledWorker, LeavesItsLastWordsWithoutItsFiguresOfMemory) {
  const WorkerExit ended = killed([&] {
    std::ofstream log(log_path(options.dump_folder, 0), std::ios::app);
    log << "said early\n";
    for (int i = 0; i < 10; ++i)
      log << "[lockstep] 2026-01-01 00:00:00,000 - INFO - rank 0: memory {\"stage\":\"s\"}\n";
    log << "said last\n";
  });
  EXPECT_THAT(ended.log_lines, ElementsAre("said early", "said last"));
}

// The storage of the run's folder hangs: a named pipe without a reader.
TEST_F(KilledWorker, HasStartedThoughItsLogsHangAndItsLastWordsAreKnown) {
  std::vector<std::filesystem::path> pipes;
  for (const char* const name : {"rank_00000.log", "console.log"}) {
    pipes.push_back(options.dump_folder / "logs" / name);
    ASSERT_EQ(::mkfifo(pipes.back().c_str(), 0600), 0);
  }
  const WorkerExit ended = killed([&] {
    EXPECT_TRUE(append_file(folder / "scratch" / "log_0", "said last\n"));
    for (const auto& pipe : pipes) ASSERT_GE(::open(pipe.c_str(), O_RDWR), 0);  // it is back
  });
  EXPECT_EQ(ended.signal, SIGKILL);
  EXPECT_THAT(ended.log_lines, ElementsAre("said last"));
}

}  // namespace
}  // namespace lockstep::launcher
