// An agent that serves its run's status: what is seen of a run that goes on, and where it is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "cli/status/status_pages.h"
#include "launcher/agent/agent.h"
#include "launcher/host/process.h"
#include "launcher/host/run_files.h"
#include "tests/support/eventually.h"
#include "tests/support/fork_agent.h"
#include "tests/support/http_get.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;
using test_support::http_get;
using testing::HasSubstr;
using testing::Not;

class StatusEndpoint : public testing::Test {
 protected:
  StatusEndpoint() {
    options_.worker_program = LOCKSTEP_FAKE_WORKER;
    options_.worker_arguments = {"100000"};
    options_.dump_folder = dir_ / "run";
    options_.environment = {{"FAKE_WORKER_STATE", (dir_ / "state").string()}};
    options_.supervisor.nproc_per_node = {2};
    options_.supervisor.hang_s = 60;
    options_.status_endpoint = "lo:0";
    options_.status_pages = status_pages(fs_, system_clock(), options_.dump_folder);
  }
  ~StatusEndpoint() override {
    for (const auto& [name, pid] : agents_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  void start(const std::string& name) {
    options_.nodes.name = name;
    agents_[name] = test_support::fork_agent(fs_, options_, dir_ / name);
  }
  int finish(const std::string& name) {
    int status = 0;
    const pid_t pid = agents_.at(name);
    await("the end", [&] { return ::waitpid(pid, &status, WNOHANG) == pid; });
    agents_.erase(name);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  template <typename Condition>
  void await(const char* what, Condition&& condition) {
    if (test_support::eventually(std::forward<Condition>(condition))) return;
    ADD_FAILURE() << "not in time: " << what;
    for (const auto& [name, pid] : agents_) ADD_FAILURE() << console(name);
  }
  std::string console(const std::string& name) const {
    const auto words = read_file(fs_, dir_ / name);
    return words ? words.value() : "";
  }
  // Port and query of the page that the agent's log names; port 0: none yet.
  struct Where {
    uint16_t port = 0;
    std::string query;
  };
  Where shown(const std::string& name) const {
    constexpr std::string_view kBefore = "status page: http://127.0.0.1:";
    const std::string words = console(name);
    const size_t at = words.find(kBefore);
    if (at == words.npos || words.find('\n', at) == words.npos) return {};
    const std::string rest = words.substr(at + kBefore.size());
    const size_t query = rest.find('?'), end = rest.find('\n');
    return {static_cast<uint16_t>(std::stoi(rest)), rest.substr(query, end - query)};
  }
  static std::string body(const std::string& answer) {
    const size_t head = answer.find("\r\n\r\n");
    return head == answer.npos ? "" : answer.substr(head + 4);
  }
  json status(const Where& where) const {
    return json::parse(body(http_get(where.port, "/status.json" + where.query)), nullptr, false);
  }

  FileSystem& fs_ = posix_file_system();
  test_support::TempDir dir_;
  launcher::AgentOptions options_;
  std::map<std::string, pid_t> agents_;
};

TEST_F(StatusEndpoint, ShowsARunThatGoesOn) {
  start("agent");
  await("the address", [&] { return shown("agent").port != 0; });
  const Where where = shown("agent");
  const auto metrics = [&] { return body(http_get(where.port, "/metrics" + where.query)); };
  await("a step", [&] {
    const std::string words = metrics();
    return words.find("lockstep_rank_phase{rank=\"1\",phase=\"step\"} 1\n") != words.npos &&
           words.find("lockstep_rank_committed_step{rank=\"1\"} ") != words.npos;
  });
  EXPECT_THAT(metrics(), HasSubstr("\nlockstep_running 1\n"));
  EXPECT_THAT(metrics(), HasSubstr("\nlockstep_world_size 2\n"));
  EXPECT_THAT(metrics(), HasSubstr("\nlockstep_generation 0\n"));
  EXPECT_THAT(body(http_get(where.port, "/" + where.query)), HasSubstr("<!DOCTYPE html>"));
  EXPECT_THAT(http_get(where.port, "/metrics"), testing::StartsWith("HTTP/1.1 401 "));

  const json before = status(where);
  EXPECT_EQ(before["state"], "running");
  ::kill(before["workers"][1]["pid"].get<pid_t>(), SIGKILL);
  await("the next generation", [&] {
    const json now = status(where);
    return now.is_object() && now["generation"] == 1 && now["workers"].size() == 2 &&
           now["workers"][1]["phase"] == "step" &&
           metrics().find("\nlockstep_restarts_total 1\n") != std::string::npos;
  });

  // Nothing of the run is written where the token could be read, and no worker has the socket.
  const std::string token = where.query.substr(where.query.find('=') + 1);
  ASSERT_EQ(token.size(), 64u);
  for (const char* name : {"events.jsonl", "workers.json", "logs/rank_00000.log", "control.secret"})
    EXPECT_THAT(read_file(fs_, dir_ / "run" / name).value(), Not(HasSubstr(token))) << name;
  ::kill(agents_.at("agent"), SIGTERM);
  EXPECT_EQ(finish("agent"), 75);
}

TEST_F(StatusEndpoint, ATakenPortIsRefusedBeforeAnyWorkerStarts) {
  start("agent");
  await("the address", [&] { return shown("agent").port != 0; });
  const uint16_t port = shown("agent").port;
  options_.dump_folder = dir_ / "other";
  options_.status_endpoint = text("127.0.0.1:", port);
  start("second");
  EXPECT_EQ(finish("second"), 64);
  EXPECT_THAT(console("second"), HasSubstr(text("cannot listen at 127.0.0.1:", port)));
  EXPECT_FALSE(fs_.exists(dir_ / "other/logs/rank_00000.log"));
  options_.status_endpoint = "nosuchinterface0:9400";
  start("second");
  EXPECT_EQ(finish("second"), 64);
  EXPECT_THAT(console("second"), HasSubstr("nosuchinterface0"));
}

TEST_F(StatusEndpoint, MovesWithTheCoordinatorAndSeesTheOtherNodes) {
  options_.supervisor.nproc_per_node = {1};
  options_.supervisor.first_generation = 1;
  options_.nodes.min = 1;
  options_.nodes.max = 2;
  options_.nodes.endpoint = text("file:", (dir_ / "meet").string());
  options_.nodes.job = "test";
  options_.nodes.local_address = "127.0.0.1";
  start("n0");
  await("the first coordinator", [&] { return shown("n0").port != 0; });
  start("n1");
  const Where first = shown("n0");
  json both;
  await("both ranks in a step", [&] {
    both = status(first);
    if (!both.is_object() || both["workers"].size() != 2) return false;
    return both["workers"][0]["phase"] == "step" && both["workers"][1]["phase"] == "step";
  });
  // (They train nothing together: one may be ahead.)
  EXPECT_THAT(both["suspects"].dump(), Not(HasSubstr("gone"))) << both;
  EXPECT_EQ(shown("n1").port, 0) << "only who coordinates serves";

  ::kill(agents_.at("n0"), SIGKILL);
  ::waitpid(agents_.at("n0"), nullptr, 0);
  agents_.erase("n0");
  await("the page of the second", [&] { return shown("n1").port != 0; });
  EXPECT_EQ(shown("n1").query, first.query) << "the token is the job's";
  await("one rank", [&] {
    const json now = status(shown("n1"));
    return now.is_object() && now["world_size"] == 1 && now["workers"].size() == 1 &&
           now["workers"][0]["phase"] == "step";
  });
  ::kill(agents_.at("n1"), SIGTERM);
  EXPECT_EQ(finish("n1"), 75);
}

TEST(StatusPages, BeforeTheFirstGenerationThereAreNoNumbers) {
  const test_support::TempDir dir;
  const auto pages = status_pages(posix_file_system(), system_clock(), dir.path());
  EXPECT_EQ(pages({.path = "/"}).status, 200u);
  EXPECT_EQ(pages({.path = "/metrics"}).status, 503u);
  EXPECT_EQ(pages({.path = "/status.json"}).status, 503u);
  EXPECT_EQ(pages({.path = "/none"}).status, 404u);
  EXPECT_THAT(pages({.path = "/"}).body,
              Not(testing::AnyOf(HasSubstr("http://"), HasSubstr("https://"))));
}

}  // namespace
}  // namespace lockstep::cli
