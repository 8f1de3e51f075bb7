// Several agents on the loopback, each a process with one launcher_fake_worker: workers, agents and
// coordinators are killed, and the others go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "launcher/agent/agent.h"
#include "launcher/host/process.h"
#include "launcher/host/run_files.h"
#include "launcher/host/scratch_folder.h"
#include "tests/support/eventually.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/fork_agent.h"

namespace lockstep::launcher {
namespace {

using Json = nlohmann::json;
using test_support::FaultyFileSystem;
using test_support::Op;
using testing::HasSubstr;

class NodesRun : public testing::Test {
 protected:
  NodesRun() {
    options.worker_program = LOCKSTEP_FAKE_WORKER;
    options.dump_folder = folder / "run";
    options.environment = {{"FAKE_WORKER_STATE", (folder / "state").string()}};
    options.supervisor.nproc_per_node = {1};
    options.supervisor.first_generation = 1;
    options.supervisor.hang_s = 60;
    options.nodes.endpoint = text("file:", (folder / "meet").string());
    options.nodes.job = "test";
    options.nodes.local_address = "127.0.0.1";
    options.nodes.last_call_s = 30;
  }
  ~NodesRun() override {
    for (const auto& [name, pid] : agents) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  void start(const std::string& name, int64_t min, int64_t max) { start(name, min, max, fs); }
  void start(const std::string& name, int64_t min, int64_t max, FileSystem& disk) {
    options.nodes.name = name;
    options.nodes.min = min;
    options.nodes.max = max;
    agents[name] = test_support::fork_agent(disk, options, folder / text("console_", name));
  }
  void start_all(int count, int64_t min, int64_t max) {
    for (int i = 0; i < count; ++i) start(text("n", i), min, max);
  }
  template <typename Condition>
  void await(const std::string& what, Condition&& condition) {
    if (!test_support::eventually(std::forward<Condition>(condition)))
      ADD_FAILURE() << "not in time: " << what << "\n" << consoles();
  }
  void kill_agent(const std::string& name) {
    const pid_t pid = agents.at(name);
    agents.erase(name);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  void expect_all(int exit_status) {
    for (const auto& [name, pid] : agents) {
      int status = 0;
      await(text("the end of ", name),
            [&, agent = pid] { return ::waitpid(agent, &status, WNOHANG) == agent; });
      EXPECT_TRUE(WIFEXITED(status)) << name;
      EXPECT_EQ(WEXITSTATUS(status), exit_status) << name << "\n" << consoles();
    }
    agents.clear();
  }
  std::string consoles() const {
    std::string all;
    for (int i = 0; i < 4; ++i)
      if (const auto one = read_file(fs, folder / text("console_n", i)); one)
        all += text("--- n", i, "\n", one.value());
    return all;
  }
  std::vector<Json> events(const std::string& name) const {
    std::vector<Json> all;
    const auto contents = read_file(fs, options.dump_folder / "events.jsonl");
    if (!contents) return all;
    for (const std::string& line : split(contents.value(), '\n')) {
      const Json json = Json::parse(line, nullptr, false);
      if (!json.is_discarded() && json["event"] == name) all.push_back(json);
    }
    return all;
  }
  void await_events(const std::string& name, size_t count) {
    await(text(count, " x ", name), [&] { return events(name).size() >= count; });
  }
  Membership members() const {
    const auto read = read_membership(fs, options.dump_folder / "workers.json");
    return read ? read.value() : Membership{};
  }
  // Of so many ranks; workers.json follows the events.
  Membership await_members(int64_t world_size) {
    Membership found;
    await(text("workers.json of ", world_size), [&] {
      found = members();
      return found.state == "running" && found.world_size == world_size &&
             agents.contains(leader_of(found));
    });
    return found;
  }
  static std::string leader_of(const Membership& membership) {
    for (const auto& node : membership.nodes)
      if (node.coordinator) return node.name;
    return "";
  }
  std::string coordinator(int64_t world_size) { return leader_of(await_members(world_size)); }
  std::string somebody_else(int64_t world_size) {
    const std::string leader = coordinator(world_size);
    for (const auto& [name, pid] : agents)
      if (name != leader) return name;
    return "";
  }
  // Ends the run, which has no last step of its own.
  void let_end() { EXPECT_TRUE(publish_file(fs, folder / "state.enough", "")); }

  FileSystem& fs = posix_file_system();
  const ScratchFolder scratch = ScratchFolder::create().value();
  const std::filesystem::path folder = scratch.path();
  AgentOptions options;
  std::map<std::string, pid_t> agents;
};

TEST_F(NodesRun, AHostWithoutAnAddressIsAwaitedAndThenAWrongConfig) {
  options.nodes.endpoint = "no-such.invalid:29500";
  options.nodes.join_s = 0.1;
  start("n0", 2, 2);
  expect_all(64);
  EXPECT_THAT(consoles(), HasSubstr("no-such.invalid"));
  options.nodes.join_s = 1e6;
  start("n1", 2, 2);
  await("a word of the wait", [&] {
    const auto said = read_file(fs, folder / "console_n1");
    return said && said.value().find("tried again") != std::string::npos;
  });
  ::kill(agents.at("n1"), SIGTERM);
  expect_all(75);
}

TEST_F(NodesRun, RunsToTheEnd) {
  options.worker_arguments = {"20"};
  start_all(3, 3, 3);
  expect_all(0);
  EXPECT_EQ(events("generation_start")[0]["world_size"], 3);
  EXPECT_EQ(events("done").size(), 1u);
  EXPECT_EQ(members().state, "done");
  EXPECT_EQ(members().nodes.size(), 1u);                   // the others have left before
  EXPECT_EQ(fs.list(folder / "meet").value().size(), 1u);  // it says that the job is over
}

TEST_F(NodesRun, AWorkerIsKilledAndAllNodesGoOn) {
  options.worker_arguments = {"40", "1:1:20:signal9"};
  options.environment["FAKE_WORKER_EVENTS"] = (options.dump_folder / "events.jsonl").string();
  start_all(3, 1, 3);
  expect_all(0);
  EXPECT_EQ(events("generation_start").back()["world_size"], 3);
  EXPECT_EQ(events("failure_detected")[0]["reason"], "killed by SIGKILL");
  ASSERT_EQ(events("recovered").size(), 1u) << consoles();
  const std::string phases = events("recovered")[0]["reason"];
  for (const char* phase : {"detect ", "stop ", "agree ", "respawn ", "restore ", "first step "})
    EXPECT_THAT(phases, HasSubstr(phase));
  RecordProperty("phases", phases);
}

TEST_F(NodesRun, AnAgentIsKilledThenTheCoordinatorOfTwo) {
  options.worker_arguments = {"100000"};
  start_all(3, 1, 3);
  await_events("first_step", 1);
  kill_agent(somebody_else(3));
  await_events("recovered", 1);
  EXPECT_EQ(events("generation_start").back()["world_size"], 2);
  EXPECT_THAT(events("failure_detected")[0]["reason"].get<std::string>(), HasSubstr("lost"));
  kill_agent(coordinator(2));
  await_events("recovered", 2);
  EXPECT_EQ(events("generation_start").back()["world_size"], 1);
  let_end();
  expect_all(0);
  EXPECT_THAT(consoles(), HasSubstr("earlier failures are in "));
  EXPECT_THAT(consoles(), HasSubstr("\ngeneration 2, world size 2\n"));
  EXPECT_GT(events("failure_detected").back()["step"], 0);
  RecordProperty("phases", events("recovered")[1]["reason"].get<std::string>());
}

TEST_F(NodesRun, TheCoordinatorIsKilledAndASpareTakesOver) {
  options.worker_arguments = {"100000"};
  options.nodes.spares = 1;
  start_all(4, 2, 3);
  await_events("first_step", 1);
  kill_agent(coordinator(3));
  await_events("recovered", 1);
  EXPECT_EQ(events("generation_start").back()["world_size"], 3);
  int64_t newest = 0;  // who lost the race to take over says nothing
  for (const Json& start : events("generation_start")) {
    EXPECT_GT(start["generation"], newest) << consoles();
    newest = start["generation"];
  }
  let_end();
  expect_all(0);
}

// Every file that is published in the shared folder takes longer than a node may be silent.
TEST_F(NodesRun, ASlowFolderDeposesNobody) {
  options.worker_arguments = {"400", "1:1:20:signal9"};
  FaultyFileSystem slow(fs, {.op = Op::kSyncDirectory, .delay_ns = 2'000'000'000});
  for (const char* name : {"n0", "n1", "n2"}) start(name, 3, 3, slow);
  expect_all(0);
  EXPECT_EQ(events("generation_start").size(), 2u) << consoles();
  EXPECT_TRUE(events("node_lost").empty());
  EXPECT_EQ(events("done").size(), 1u);
  EXPECT_EQ(members().state, "done");
}

TEST_F(NodesRun, AnotherJobInTheSameFolderIsRefused) {
  options.worker_arguments = {"100000"};
  start_all(2, 2, 2);
  await_events("first_step", 1);
  options.nodes.job = "another";
  options.nodes.endpoint = text("file:", (folder / "elsewhere").string());
  const auto console = folder / "console_n2";
  const pid_t second = test_support::fork_agent(fs, options, console);
  int status = 0;
  await("the end of the second", [&] { return ::waitpid(second, &status, WNOHANG) == second; });
  EXPECT_EQ(WEXITSTATUS(status), 64) << consoles();
  EXPECT_THAT(read_file(fs, console).value(), HasSubstr("is being trained by job test already"));
  ::kill(agents.at("n0"), SIGTERM);
  expect_all(75);
}

TEST_F(NodesRun, AStopAtAnyNodeStopsAll) {
  options.worker_arguments = {"100000"};
  start_all(2, 2, 2);
  await_events("first_step", 1);
  ::kill(agents.at(somebody_else(2)), SIGTERM);
  expect_all(75);
  EXPECT_EQ(events("stop_requested").size(), 1u);
}

// Half of the nodes may go on, and so may the other half once it wakes: not after the job's end.
TEST_F(NodesRun, WhoWakesAfterTheEndTrainsNoMore) {
  options.worker_arguments = {"100000"};
  start_all(2, 1, 2);
  await_events("first_step", 1);
  const std::string frozen = coordinator(2), other = somebody_else(2);
  std::vector<pid_t> stopped = {agents.at(frozen)};
  for (const auto& worker : await_members(2).workers)
    if (worker.node == frozen) stopped.push_back(worker.pid);
  ASSERT_EQ(stopped.size(), 2u);
  for (const pid_t pid : stopped) ::kill(pid, SIGSTOP);
  await_events("recovered", 1);
  ::kill(agents.at(other), SIGTERM);
  int status = 0;
  await("the end", [&] { return ::waitpid(agents.at(other), &status, WNOHANG) > 0; });
  EXPECT_EQ(WEXITSTATUS(status), 75) << consoles();
  agents.erase(other);
  EXPECT_EQ(members().exit_status, 75);
  for (const pid_t pid : stopped) ::kill(pid, SIGCONT);
  await("its end as coordinator", [&] {
    return read_file(fs, folder / ("console_" + frozen)).value().find("no longer coordinates") !=
           std::string::npos;
  });
  EXPECT_EQ(events("spawned").size(), 2u) << consoles();
  EXPECT_EQ(members().exit_status, 75);  // its own is not the job's
}

TEST_F(NodesRun, TooFewNodesEndTheRunToBeResumed) {
  options.worker_arguments = {"100000"};
  options.nodes.last_call_s = 0.5;
  start_all(3, 3, 3);
  await_events("first_step", 1);
  kill_agent(somebody_else(3));
  expect_all(75);
  EXPECT_THAT(consoles(), HasSubstr("2 nodes are left and 3 are needed"));
}

// [S4] Another one's line may say that the others train.
TEST_F(NodesRun, WhoTrainedNothingSpeaksForTheJobOnlyWhileTheFolderNamesIt) {
  options.nodes.min = options.nodes.max = 2;
  for (const bool named : {true, false}) {
    options.nodes.job = named ? "named" : "another";
    const auto line = [&](int number) {
      return folder / "meet" / text(options.nodes.job, ".coordinator.", number);
    };
    const pid_t agent = ::fork();
    if (agent == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const AgentEnd end = run_agent(fs, system_clock(), options);
      ::_exit(end.exit_status != kExitResume ? 2 : end.speaks_for_job ? 1 : 0);
    }
    agents["n0"] = agent;
    await("its line", [&] { return fs.exists(line(0)); });
    const std::string others = "127.0.0.1:1 000000000000002a 1 0 -1 0 0 0";
    EXPECT_TRUE(named || publish_file(fs, line(1), others).ok());
    ::kill(agent, SIGTERM);
    expect_all(named ? 1 : 0);
  }
}

}  // namespace
}  // namespace lockstep::launcher
