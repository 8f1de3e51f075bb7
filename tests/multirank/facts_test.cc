// What ranks agree on when they join: processes that meet over Gloo, one of which says something
// else of itself. Every one of them must say what the others say.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/check.h"
#include "base/text.h"
#include "core/comm/join.h"
#include "tests/support/temp_dir.h"

namespace lockstep::core {
namespace {

// So long only a rank waits that was left alone.
constexpr double kPatienceSeconds = 120;

// What becomes of a rank: its transport and what it gathered, or its error.
std::string join_and_gather(const RendezvousOptions& options) {
  auto joined = join(options);
  if (!joined.ok()) return text(code_name(joined.error().code), ": ", joined.error().message);
  Communicator& all = *joined->communicator;
  const at::Tensor mine = at::arange(all.rank(), all.rank() + 1, at::kLong);
  const at::Tensor of_all = at::empty({all.world_size()}, at::kLong);
  if (auto done = all.all_gather(of_all, mine)->wait(); !done.ok()) return done.error().message;
  std::string said = transport_name(joined->transport.value());
  for (int r = 0; r < all.world_size(); ++r) said += text(" ", of_all.const_data_ptr<int64_t>()[r]);
  return said;
}

// Each rank in a process of its own. What they say, by rank.
std::vector<std::string> join_all(const std::vector<RendezvousOptions>& ranks) {
  std::vector<int> ends;
  std::vector<pid_t> pids;
  const pid_t parent = ::getpid();
  for (const RendezvousOptions& options : ranks) {
    int both[2];
    LOCKSTEP_CHECK(::pipe2(both, O_CLOEXEC) == 0, "pipe");
    const pid_t pid = ::fork();
    LOCKSTEP_CHECK(pid >= 0, "fork");
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      const std::string said = join_and_gather(options);
      const bool all = ::write(both[1], said.data(), said.size()) == std::ssize(said);
      ::_exit(all ? 0 : 1);
    }
    ::close(both[1]);
    ends.push_back(both[0]);
    pids.push_back(pid);
  }
  std::vector<std::string> said;
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::string& words = said.emplace_back();
    char bytes[4096];
    for (ssize_t got; (got = ::read(ends[r], bytes, sizeof bytes)) > 0;)
      words.append(bytes, static_cast<size_t>(got));
    ::close(ends[r]);
    int status = 0;
    ::waitpid(pids[r], &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  return said;
}

class Join : public testing::Test {
 protected:
  std::vector<RendezvousOptions> ranks(int count) const {
    std::vector<RendezvousOptions> all;
    for (int r = 0; r < count; ++r) {
      RendezvousOptions one;
      one.rank = r;
      one.world_size = count;
      one.store = text("file:", (folder / "store").string());
      one.prefix = "g1";
      one.init_timeout_s = one.timeout_s = kPatienceSeconds;
      one.facts.host = text("host", r / 2);
      all.push_back(one);
    }
    return all;
  }
  test_support::TempDir folder;
};

TEST_F(Join, AllTakeTheSameTransport) {
  for (const std::string& said : join_all(ranks(3))) EXPECT_EQ(said, "memory 0 1 2");
}

// Without LOCAL_WORLD_SIZE rank 1 takes both for ranks of one node, and rank 0 does not.
TEST_F(Join, RanksThatKnowUnlikeNodesMeetAllTheSame) {
  auto both = ranks(2);
  for (RendezvousOptions& one : both) one.local_world_size = one.rank + 1;
  for (const std::string& said : join_all(both)) EXPECT_EQ(said, "memory 0 1");
}

TEST_F(Join, ARankOnAnotherKindOfDeviceEndsAllWithTheSameWords) {
  auto all = ranks(4);
  all[2].facts.build = all[2].facts.kind = "cuda";
  all[2].facts.devices = 8;
  const auto said = join_all(all);
  for (const std::string& each : said) EXPECT_EQ(each, said[0]);
  EXPECT_NE(said[0].find("config: rank 2 on host1 computes on cuda (it sees 8 cuda devices), and "
                         "rank 0 on host0 computes on cpu"),
            std::string::npos)
      << said[0];
}

TEST_F(Join, ARankOnAnothersDeviceEndsAllWithTheSameWords) {
  auto all = ranks(4);
  for (RendezvousOptions& one : all) {
    one.facts.build = one.facts.kind = "cuda";
    one.facts.devices = one.rank < 2 ? 2 : 1;
    one.facts.uuid = text("GPU-", one.rank == 3 ? 2 : one.rank);
  }
  const auto said = join_all(all);
  for (const std::string& each : said) EXPECT_EQ(each, said[0]);
  EXPECT_NE(said[0].find("rank 3 on host1 (it sees 1 cuda device) computes on device GPU-2 as "
                         "rank 2 on host1 does"),
            std::string::npos)
      << said[0];
}

}  // namespace
}  // namespace lockstep::core
