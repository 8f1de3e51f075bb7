// Workers as real processes: what is known of one that was killed, and who takes its place.
#include "launcher/agent/worker_processes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>

#include "base/text.h"
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
  static WorkerOrders orders_of(int generation, int workers) {
    WorkerOrders orders;
    orders.world_size = orders.local_world_size = workers;
    orders.generation = generation;
    orders.nonce = "abcdef";
    return orders;
  }
  // Whether the process that was started so many others before waits for orders.
  bool is_parked(int started) const {
    const auto page = folder / "scratch" / text("page_", started);
    return std::filesystem::exists(page) &&
           ProgressPage::open(page).value()->turn() == Turn::kParked;
  }
  // How the worker of a generation of one ends, that is killed when `before_kill` was called.
  WorkerExit killed(const std::function<void()>& before_kill) {
    WorkerProcesses workers(posix_file_system(), system_clock(), options, folder / "scratch");
    EXPECT_TRUE(workers.start(orders_of(1, 1)).ok());
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

TEST_F(KilledWorker, SaysWhetherItsAgentKilledIt) {
  const WorkerExit by_others = killed([] {});
  EXPECT_EQ(by_others.agent_did, AgentDid::kNothing);
  WorkerProcesses workers(posix_file_system(), system_clock(), options, folder / "scratch");
  WorkerOrders orders = orders_of(1, 2);
  orders.world_size = 2;
  ASSERT_TRUE(workers.start(orders).ok());
  ASSERT_EQ(::kill(workers.pids().at(1), SIGSTOP), 0);
  ASSERT_TRUE(test_support::eventually([&] { return is_stopped(workers.pids().at(1)); }));
  ASSERT_EQ(::kill(workers.pids().at(0), SIGKILL), 0);
  says_ended(4);
  workers.halt();
  std::vector<WorkerExit> exits;
  ASSERT_TRUE(test_support::eventually([&] {
    for (WorkerExit& exit : workers.reap()) exits.push_back(std::move(exit));
    return exits.size() == 2;
  }));
  std::sort(exits.begin(), exits.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  EXPECT_EQ(exits[0].signal, SIGKILL);
  EXPECT_EQ(exits[0].agent_did, AgentDid::kToldToLetGo);
  EXPECT_TRUE(exits[0].no_memory) << "the agent sent it none";
  EXPECT_EQ(exits[1].signal, SIGKILL);
  EXPECT_EQ(exits[1].agent_did, AgentDid::kKilled);
  EXPECT_FALSE(exits[1].no_memory);
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

// As on a GPU: all of them end with their generation, and none has to be loaded.
TEST_F(KilledWorker, WhereProcessesServeOneGenerationEachHasASuccessor) {
  options.worker_arguments.push_back("device");
  WorkerProcesses workers(posix_file_system(), system_clock(), options, folder / "scratch");
  ASSERT_TRUE(workers.start(orders_of(1, 2)).ok());
  const std::vector<int32_t> first = workers.pids();
  ASSERT_TRUE(test_support::eventually([&] {
    workers.keep_ready(0);
    return is_parked(2) && is_parked(3);
  }));
  std::vector<int32_t> ready;  // in the order in which they were started
  std::ifstream children(text("/proc/self/task/", ::getpid(), "/children"));
  for (int32_t pid = 0; children >> pid;)
    if (std::find(first.begin(), first.end(), pid) == first.end()) ready.push_back(pid);
  ::kill(first[1], SIGKILL);
  workers.halt();
  size_t ended = 0;
  ASSERT_TRUE(test_support::eventually([&] { return (ended += workers.reap().size()) == 2; }));
  ASSERT_TRUE(workers.start(orders_of(2, 2)).ok());
  EXPECT_EQ(workers.pids(), ready);
}

}  // namespace
}  // namespace lockstep::launcher
