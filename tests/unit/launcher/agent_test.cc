// The agent with real processes: launcher_fake_worker, which misbehaves as told.
#include "launcher/agent/agent.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/environment.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "launcher/host/other_runs.h"
#include "launcher/host/process.h"
#include "launcher/host/run_files.h"
#include "launcher/host/scratch_folder.h"
#include "tests/support/eventually.h"
#include "tests/support/fork_agent.h"
#include "tests/support/shared_clock.h"

namespace lockstep::launcher {
namespace {

using Json = nlohmann::json;
using test_support::eventually;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMs = 1'000'000;
constexpr const char* kSteps = "20";

class AgentRun : public testing::Test {
 protected:
  AgentRun() {
    options.worker_program = LOCKSTEP_FAKE_WORKER;
    options.dump_folder = folder / "run";
    options.environment = {{"FAKE_WORKER_STATE", (folder / "state").string()},
                           {"FAKE_WORKER_EVENTS", (options.dump_folder / "events.jsonl").string()}};
    options.resume_command = "THE RESUME COMMAND";
    options.supervisor.nproc_per_node = {2};
    options.supervisor.hang_s = 30;
  }
  ~AgentRun() override {
    if (agent > 0) {
      ::kill(agent, SIGKILL);
      ::waitpid(agent, nullptr, 0);
    }
  }

  // The agent in a process of its own; its output goes to folder/console.
  void start(std::vector<std::string> rules) {
    options.worker_arguments = std::move(rules);
    agent = test_support::fork_agent(fs, options, folder / "console", clock);
  }
  int finish() {
    int status = 0;
    if (!eventually([&] { return ::waitpid(agent, &status, WNOHANG) == agent; })) {
      ADD_FAILURE() << "the agent is still running\n" << console();
      return -1;
    }
    agent = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  int run(std::vector<std::string> rules) {
    start(std::move(rules));
    return finish();
  }
  std::string console() const { return read_file(fs, folder / "console").value(); }
  std::vector<Json> events(const std::string& name = "") const {
    std::vector<Json> all;
    const auto contents = read_file(fs, options.dump_folder / "events.jsonl");
    if (!contents) return all;
    for (const std::string& line : split(contents.value(), '\n')) {
      if (line.empty()) continue;
      Json json = Json::parse(line, nullptr, false);
      if (json.is_discarded()) continue;  // being written
      if (name.empty() || json["event"] == name) all.push_back(std::move(json));
    }
    return all;
  }
  // Waits until `count` events of this name are there.
  std::vector<Json> await_events(const std::string& name, size_t count) {
    std::vector<Json> found;
    if (!eventually([&] { return (found = events(name)).size() >= count; }))
      ADD_FAILURE() << "no " << count << " x " << name << "\n" << console();
    return found;
  }
  // Of the generation that runs: workers.json follows the events.
  Membership await_membership(size_t workers = 2) {
    Result<Membership> read = Error{Code::kNotFound, ""};
    EXPECT_TRUE(eventually([&] {
      read = read_membership(fs, options.dump_folder / "workers.json");
      return read && read.value().state == "running" && read.value().workers.size() == workers;
    })) << console();
    return read ? read.value() : Membership{};
  }
  static void stop(pid_t pid) {
    ::kill(pid, SIGSTOP);
    EXPECT_TRUE(eventually([&] { return is_stopped(pid); }));
  }
  // Wakes them, and returns when each has made a step.
  static void wake(const std::vector<Membership::Member>& workers) {
    for (const auto& worker : workers) {
      const auto page = ProgressPage::open(worker.progress_page).value();
      const int64_t before = page->read().step;
      ::kill(worker.pid, SIGCONT);
      EXPECT_TRUE(eventually([&] { return page->read().step > before; }));
    }
  }
  std::vector<int64_t> world_sizes() const {
    std::vector<int64_t> sizes;
    for (const Json& event : events("generation_start")) sizes.push_back(event["world_size"]);
    return sizes;
  }

  FileSystem& fs = posix_file_system();
  const ScratchFolder scratch = ScratchFolder::create().value();
  const std::filesystem::path folder = scratch.path();
  AgentOptions options;
  test_support::SharedClock clock;
  pid_t agent = -1;
};

TEST_F(AgentRun, RunsToTheEndAndShowsRankZero) {
  EXPECT_EQ(run({kSteps}), 0);
  EXPECT_THAT(console(), HasSubstr("step: 20 generation: 0\n"));
  EXPECT_THAT(read_file(fs, log_path(options.dump_folder, 0)).value(),
              HasSubstr("step: 20 generation: 0\n"));
  EXPECT_TRUE(fs.exists(options.dump_folder / "logs" / "rank_00001.log"));
  EXPECT_EQ(events("done").size(), 1u);
  const auto membership = read_membership(fs, options.dump_folder / "workers.json");
  ASSERT_TRUE(membership);
  EXPECT_EQ(membership.value().state, "done");
  EXPECT_EQ(membership.value().exit_status, 0);
  ASSERT_EQ(membership.value().workers.size(), 2u);
  EXPECT_EQ(membership.value().workers[1].progress.phase, Phase::kDone);
}

TEST_F(AgentRun, RestartsWithTheWorldSizesOfTheList) {
  options.supervisor.nproc_per_node = {2, 3, 1};
  EXPECT_EQ(run({kSteps, "0:1:6:!signal9", "1:2:14:!signal11"}), 0);
  EXPECT_THAT(world_sizes(), ElementsAre(2, 3, 1));
  std::vector<std::string> names;
  for (const Json& event : events())
    if (event["event"] != "worker_exit") names.push_back(event["event"]);
  EXPECT_THAT(names, ElementsAre("generation_start", "spawned", "first_step", "failure_detected",
                                 "stopped_all", "generation_start", "spawned", "first_step",
                                 "recovered", "failure_detected", "stopped_all", "generation_start",
                                 "spawned", "first_step", "recovered", "done"));
  EXPECT_EQ(events("failure_detected")[0]["rank"], 1);
  EXPECT_EQ(events("failure_detected")[0]["reason"], "killed by SIGKILL");
  EXPECT_EQ(events("failure_detected")[0]["step"], 6);
  EXPECT_EQ(events("worker_exit").size(), 6u);
  EXPECT_GE(events("recovered")[0]["step"], 5);  // after the commit of step 4
  EXPECT_THAT(console(), HasSubstr("rank 2 killed by SIGSEGV, at step 14, step"));
  EXPECT_THAT(console(), testing::ContainsRegex("continues from step [0-9]+; .* computed again"));
}

TEST_F(AgentRun, SurvivorsKeepTheirProcesses) {
  options.supervisor.nproc_per_node = {3};
  EXPECT_EQ(run({kSteps, "0:1:6:signal9", "1:2:10:!exit70", "2:0:14:signal9"}), 0);
  const auto spawned = events("spawned");
  ASSERT_EQ(spawned.size(), 4u);
  const std::vector<size_t> killed{1, 2, 0};
  for (size_t generation = 1; generation < 4; ++generation) {
    const Json before = spawned[generation - 1]["pids"], now = spawned[generation]["pids"];
    for (size_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ(now[rank] == before[rank], rank != killed[generation - 1])
          << "generation " << generation << ", rank " << rank;
  }
  // Each rank's lines are in its own file, whoever serves it.
  EXPECT_THAT(console(), HasSubstr("step: 20 generation: 3\n"));
  EXPECT_THAT(console(), HasSubstr("2 of 3 worker processes of this node stay alive and rejoin"));
}

TEST_F(AgentRun, AShrinkKeepsTheSurvivorsAndTheirOutput) {
  options.supervisor.nproc_per_node = {3};
  options.supervisor.shrink = true;
  EXPECT_EQ(run({kSteps, "0:0:6:signal9"}), 0);
  const auto spawned = events("spawned");
  ASSERT_EQ(spawned.size(), 2u);
  EXPECT_EQ(spawned[1]["pids"], Json::array({spawned[0]["pids"][1], spawned[0]["pids"][2]}));
  EXPECT_THAT(console(), HasSubstr("step: 20 generation: 1\n"));
}

TEST_F(AgentRun, TheOneThatIsReadyTakesThePlaceOfTheLost) {
  start({"100000"});
  const auto children = [&] {
    const auto path = text("/proc/", agent, "/task/", agent, "/children");
    return split(read_stream(path).value(), ' ');
  };
  ASSERT_TRUE(eventually([&] { return children().size() == 4; }));  // the last word is empty
  const auto before = children();
  const Membership membership = await_membership();
  ASSERT_EQ(membership.workers.size(), 2u);
  // Its page is the third of all; it waits there for orders.
  const auto page = membership.workers[0].progress_page.parent_path() / "page_2";
  ASSERT_TRUE(fs.exists(page));
  const auto ready = ProgressPage::open(page).value();
  ASSERT_TRUE(eventually([&] { return ready->turn() == Turn::kParked; }));
  const auto first = await_events("spawned", 1)[0]["pids"];
  ::kill(first[1].get<pid_t>(), SIGKILL);
  const auto spawned = await_events("spawned", 2);
  ASSERT_EQ(spawned.size(), 2u);
  EXPECT_EQ(spawned[1]["pids"][0], first[0]);
  EXPECT_EQ(std::to_string(spawned[1]["pids"][1].get<pid_t>()), before[2]);
  ::kill(agent, SIGTERM);
  EXPECT_EQ(finish(), 75);
}

TEST_F(AgentRun, WhoDoesNotLetGoIsKilled) {
  options.supervisor.nproc_per_node = {3};
  EXPECT_EQ(run({kSteps, "deaf", "0:1:6:signal9", "0:0:7:hang", "0:2:7:hang"}), 0);
  const auto spawned = events("spawned");
  ASSERT_EQ(spawned.size(), 2u);
  for (size_t rank = 0; rank < 3; ++rank)
    EXPECT_NE(spawned[1]["pids"][rank], spawned[0]["pids"][rank]);
  for (const Json& exit : events("worker_exit")) {
    if (exit["generation"] != 0) continue;
    EXPECT_THAT(exit["reason"].get<std::string>(), testing::StartsWith("killed by SIGKILL"));
  }
}

TEST_F(AgentRun, AKillFromOutsideIsDetected) {
  start({"100000", "child"});
  ASSERT_FALSE(await_events("first_step", 1).empty());
  const Membership membership = await_membership();
  ASSERT_EQ(membership.workers.size(), 2u);
  const pid_t victim = membership.workers[1].pid;
  const int64_t killed_ns = system_clock().unix_ns();
  ::kill(victim, SIGKILL);
  const auto detected = await_events("failure_detected", 1);
  ASSERT_EQ(detected.size(), 1u);
  EXPECT_EQ(detected[0]["pid"], victim);
  const double detect_ms =
      detected[0]["t"].get<double>() * 1e3 - static_cast<double>(killed_ns) * 1e-6;
  RecordProperty("detect_us", static_cast<int>(detect_ms * 1000));
  EXPECT_EQ(await_events("first_step", 2).size(), 2u);
  ::kill(agent, SIGTERM);
  EXPECT_EQ(finish(), 75);
}

TEST_F(AgentRun, AWitnessIsNotTheCulprit) {
  options.supervisor.nproc_per_node = {3};
  options.supervisor.max_restarts = 0;
  EXPECT_EQ(run({kSteps, "0:2:6:!exit70"}), 70);
  EXPECT_EQ(events("failure_detected")[0]["rank"], 2);
  EXPECT_THAT(console(), HasSubstr("first  rank 2 exit code 70 (bug), at step 6"));
  EXPECT_THAT(console(), HasSubstr("| about to leave with exit70"));
  EXPECT_THAT(console(), HasSubstr("THE RESUME COMMAND"));
}

TEST_F(AgentRun, ShrinksToTheSurvivors) {
  options.supervisor.nproc_per_node = {3};
  options.supervisor.shrink = true;
  EXPECT_EQ(run({kSteps, "0:0:6:signal9", "1:1:10:signal9"}), 0);
  EXPECT_THAT(world_sizes(), ElementsAre(3, 2, 1));
}

TEST_F(AgentRun, GivesUpWithoutProgress) {
  // All ranks: one that goes on may reach the commit of step 4 before it is killed.
  EXPECT_EQ(run({kSteps, "0:*:2:signal9", "1:*:2:signal9", "2:*:2:signal9", "3:*:2:signal9"}), 93);
  EXPECT_THAT(world_sizes(), ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(events("failed")[0]["exit_status"], 93);
}

TEST_F(AgentRun, AWrongConfigIsNotRestarted) {
  EXPECT_EQ(run({kSteps, "0:*:1:exit64"}), 64);
  EXPECT_EQ(world_sizes().size(), 1u);
  EXPECT_THAT(console(), testing::Not(HasSubstr("RESUME COMMAND")));
}

TEST_F(AgentRun, AHangAndAStoppedProcessAreKilledAndRestarted) {
  options.supervisor.hang_s = 3;  // longer than a busy machine may leave a worker waiting
  EXPECT_EQ(run({kSteps, "0:*:6:hang", "1:1:10:stop", "1:0:10:hang"}), 0);
  EXPECT_EQ(world_sizes().size(), 3u);
  const std::string reason = events("failure_detected")[0]["reason"];
  constexpr std::string_view kSilence = "no progress for ";
  ASSERT_THAT(reason, HasSubstr(kSilence));
  EXPECT_GE(std::stod(reason.substr(reason.find(kSilence) + kSilence.size())), 3);
  EXPECT_EQ(events("failure_detected")[1]["rank"], 1);
  EXPECT_THAT(events("failure_detected")[1]["reason"].get<std::string>(), HasSubstr("SIGSTOP"));
}

// Both outside of any deadline for hangs.
TEST_F(AgentRun, AStopOfSecondsIsLeftAloneAndALongerOneIsAHang) {
  options.supervisor.hang_s = 600;
  options.tick_ms = 2;
  start({"100000"});
  await_events("first_step", 1);
  const Membership membership = await_membership();
  ASSERT_EQ(membership.workers.size(), 2u);
  const auto& worker = membership.workers[1];
  clock.stop();
  stop(worker.pid);
  EXPECT_TRUE(clock.pass(3000 * kMs));
  wake({worker});
  EXPECT_TRUE(clock.pass(1000 * kMs));
  EXPECT_TRUE(events("failure_detected").empty()) << console();
  stop(worker.pid);
  EXPECT_TRUE(
      eventually([&] { return !events("failure_detected").empty() || !clock.pass(200 * kMs); }));
  await_events("recovered", 1);
  const auto failures = await_events("failure_detected", 1);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0]["rank"], 1);
  EXPECT_THAT(failures[0]["reason"].get<std::string>(),
              testing::StartsWith("stopped (SIGSTOP), no progress for 5."));
  EXPECT_FALSE(is_alive(worker.pid));
  ::kill(agent, SIGTERM);
  EXPECT_EQ(finish(), 75);
}

// As when Slurm suspends it; the agent falls asleep last and wakes first.
TEST_F(AgentRun, ASuspendedJobGoesOnWhenItWakes) {
  options.supervisor.hang_s = 5;
  options.tick_ms = 2;
  start({"100000"});
  await_events("first_step", 1);
  const Membership membership = await_membership();
  clock.stop();
  for (const auto& worker : membership.workers) stop(worker.pid);
  EXPECT_TRUE(clock.pass(1500 * kMs));
  stop(agent);
  clock.skip(6000 * kMs);
  ::kill(agent, SIGCONT);
  EXPECT_TRUE(clock.pass(500 * kMs));
  wake(membership.workers);
  EXPECT_TRUE(clock.pass(1000 * kMs));
  ::kill(agent, SIGTERM);
  EXPECT_EQ(finish(), 75);
  EXPECT_TRUE(events("failure_detected").empty()) << console();
}

TEST_F(AgentRun, AStopLetsWorkersSaveAndExits75) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) {
    start({"100000"});
    const size_t before = events("stop_requested").size();
    await_events("first_step", before + 1);
    ::kill(agent, signal);
    EXPECT_EQ(finish(), 75);
    EXPECT_EQ(events("stopped").size(), before + 1);
    EXPECT_THAT(events("worker_exit").back()["reason"].get<std::string>(), HasSubstr("saved;"));
  }
  EXPECT_THAT(console(), HasSubstr("THE RESUME COMMAND"));
}

TEST_F(AgentRun, WhoIgnoresTermIsKilledAfterTheGrace) {
  options.supervisor.grace_s = 0.3;
  start({"100000", "ignore_term"});
  await_events("first_step", 1);
  ::kill(agent, SIGTERM);
  EXPECT_EQ(finish(), 75);
  EXPECT_EQ(events("grace_over").size(), 1u);
}

TEST_F(AgentRun, ASecondInterruptKillsAtOnce) {
  options.supervisor.grace_s = 30;
  start({"100000", "ignore_term"});
  await_events("first_step", 1);
  ::kill(agent, SIGINT);
  await_events("stop_requested", 1);
  clock.skip(1100 * kMs);  // not the same one, by another way
  ::kill(agent, SIGINT);
  EXPECT_EQ(finish(), 75);
  EXPECT_TRUE(events("grace_over").empty());
}

TEST_F(AgentRun, NoOrphansWhenTheAgentIsKilled) {
  start({"100000"});
  await_events("first_step", 1);
  const Membership membership = await_membership();
  ASSERT_EQ(membership.workers.size(), 2u);
  become_subreaper();
  ::kill(agent, SIGKILL);
  EXPECT_EQ(finish(), 1000 + SIGKILL);
  for (const auto& worker : membership.workers)
    EXPECT_TRUE(eventually([&] {
      reap_orphans({});
      return !is_alive(worker.pid);
    }));
  // What a killed agent left behind stops nobody, and the next one removes it.
  start({kSteps});
  EXPECT_EQ(finish(), 0);
  const auto left = membership.workers[0].progress_page.parent_path();
  ASSERT_THAT(left.filename().string(), testing::StartsWith("lockstep-"));
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(AgentRun, TwoAgentsInOneFolderAreRefused) {
  start({"100000"});
  await_events("first_step", 1);
  const pid_t first = std::exchange(agent, -1);
  const auto lock = options.dump_folder / "logs" / text("agent_", host_name(), ".lock");
  EXPECT_EQ(std::filesystem::status(lock).permissions(), std::filesystem::perms(0600));
  start({kSteps});
  EXPECT_EQ(finish(), 64);
  EXPECT_THAT(console(), HasSubstr(text("is being trained by process ", first, " already")));
  agent = first;
  ::kill(agent, SIGTERM);
  EXPECT_EQ(finish(), 75);
}

// Each of them looks before another one has written anything.
TEST_F(AgentRun, OfAgentsThatStartTogetherInOneFolderOneRuns) {
  options.worker_arguments = {"100000"};
  std::vector<pid_t> started;
  for (int i = 0; i < 4; ++i)
    started.push_back(test_support::fork_agent(fs, options, folder / "console"));
  for (int refused = 0; refused < 3; ++refused) {
    int status = 0;
    pid_t ended = 0;
    EXPECT_TRUE(eventually([&] {
      for (const pid_t pid : started)
        if (ended == 0 && ::waitpid(pid, &status, WNOHANG) == pid) ended = pid;
      return ended != 0;
    }));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 64) << status << "\n" << console();
    std::erase(started, ended);
  }
  ASSERT_EQ(started.size(), 1u);
  agent = started.front();
  await_events("first_step", 1);
  EXPECT_EQ(events("generation_start").size(), 1u);
  EXPECT_THAT(console(), HasSubstr("is being trained by "));
  // Its workers do not hold the lock, and it does not when it is killed.
  const auto lock = options.dump_folder / "logs" / text("agent_", host_name(), ".lock");
  const auto holds_it = [&](pid_t pid) {
    std::error_code none;  // of what is no file
    for (const auto& each : std::filesystem::directory_iterator(text("/proc/", pid, "/fd")))
      if (std::filesystem::equivalent(each, lock, none)) return true;
    return false;
  };
  EXPECT_TRUE(holds_it(agent));
  const Membership membership = await_membership();
  for (const auto& worker : membership.workers) EXPECT_FALSE(holds_it(worker.pid));
  ::kill(agent, SIGKILL);
  ::waitpid(std::exchange(agent, -1), nullptr, 0);
  // One that it was about to start has it until it dies as well.
  EXPECT_TRUE(eventually([&] { return FolderClaim::take(options.dump_folder).ok(); }));
}

TEST_F(AgentRun, LeavesNothingInTheTemporaryFolder) {
  EXPECT_EQ(run({kSteps}), 0);
  const auto membership = read_membership(fs, options.dump_folder / "workers.json");
  ASSERT_TRUE(membership);
  const auto left = membership.value().workers[0].progress_page.parent_path();
  ASSERT_THAT(left.filename().string(), testing::StartsWith("lockstep-"));
  EXPECT_FALSE(fs.exists(left));
}

TEST_F(AgentRun, AMissingWorkerProgramIsSaid) {
  options.worker_program = "/nonexistent/lockstep-worker";
  EXPECT_EQ(run({kSteps}), 70);
  EXPECT_THAT(console(), HasSubstr("/nonexistent/lockstep-worker"));
}

// What rank 0 warns of is shown while it runs, and is once in its log.
TEST_F(AgentRun, WarningsOfRankZeroAreOnTheConsole) {
  EXPECT_EQ(run({kSteps, "logs"}), 0);
  const auto once = [](const std::string& text, const std::string& words) {
    const size_t at = text.find(words);
    return at != text.npos && text.find(words, at + 1) == text.npos;
  };
  EXPECT_PRED2(once, console(), "the disk is slow");
  EXPECT_THAT(console(), Not(HasSubstr("of no interest")));
  const std::string log = read_file(fs, log_path(options.dump_folder, 0)).value();
  EXPECT_PRED2(once, log, "the disk is slow");
  EXPECT_PRED2(once, log, "step: 20 generation: 0\n");
}

// Nobody reads the console: neither the workers nor the agent wait for it.
TEST_F(AgentRun, AConsoleThatNobodyReadsStopsNobody) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string filler(1 << 16, '.');
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  while (::write(ends[1], filler.data(), filler.size()) > 0) {
  }
  options.worker_arguments = {kSteps};
  agent = ::fork();
  if (agent == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::_exit(run_agent(fs, system_clock(), options).exit_status);
  }
  EXPECT_EQ(finish(), 0);
  EXPECT_THAT(read_file(fs, options.dump_folder / "logs" / "console.log").value(),
              HasSubstr("step: 20 generation: 0\n"));
  EXPECT_THAT(read_file(fs, log_path(options.dump_folder, 0)).value(),
              HasSubstr("step: 20 generation: 0\n"));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace lockstep::launcher
