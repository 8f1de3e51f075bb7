// SIGSTOP inside a collective, the others re-form, SIGCONT. Ranks are processes that follow orders,
// as workers do (core/train/turns.h): this test says who joins what, enters which collective, is
// stopped and woken. So what is certain in each case: B is inside, for A has not come yet.
//
//   generation 1   A B     B enters and is stopped there; A enters, and gives up when told to
//   generation 2   A C     exchange and compare, while B is stopped, when it wakes, and after
//   generation 3   A B C   in the cases in which B has let go of generation 1, too
//
// Whatever a rank has received it keeps and compares again, to the end: late bytes would show.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <list>

#include "base/check.h"
#include "base/text.h"
#include "core/comm/join.h"
#include "core/train/process.h"
#include "core/train/turns.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_dir.h"

namespace lockstep::core {
namespace {

constexpr int kAnswerMs = test_support::kPatienceMs;  // a rank may take so long for anything
constexpr int kLookMs = 100;                          // at a rank that must not answer yet
constexpr double kCollectiveSeconds = 45;
constexpr int kLeft = 7;  // the exit code of a rank that was told to leave

struct Case {
  const char* kind;
  bool shared_memory;
  int64_t elements;  // of a part
  bool joins_again;  // B, once it is awake
};

// One end of a pair of sockets: lines, both ways.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  // Who is not there any more does not answer.
  void say(const std::string& words) const {
    const std::string line = words + "\n";
    [[maybe_unused]] const auto sent = ::send(fd_, line.data(), line.size(), MSG_NOSIGNAL);
  }
  // Empty: nothing came in time, or nobody is there any more.
  std::string hear(int timeout_ms) {
    while (heard_.find('\n') == std::string::npos) {
      pollfd polled{fd_, POLLIN, 0};
      char bytes[256];
      if (::poll(&polled, 1, timeout_ms) != 1) return "";
      const ssize_t got = ::recv(fd_, bytes, sizeof bytes, 0);
      if (got <= 0) return "";
      heard_.append(bytes, static_cast<size_t>(got));
    }
    const size_t end = heard_.find('\n');
    std::string line = heard_.substr(0, end);
    heard_.erase(0, end + 1);
    return line;
  }

 private:
  int fd_;
  std::string heard_;
};

// --- What runs in the ranks' processes.

struct Issued {
  PendingPtr pending;
  at::Tensor out, expected;
  bool same() const { return at::equal(out, expected); }
};

// What `from` sends to `to` as collective `number` of a generation; known to both.
at::Tensor message(int64_t n, int64_t generation, int64_t number, int64_t from, int64_t to) {
  const int64_t first = generation * 1'000'003 + number * 10'007 + from * 101 + to;
  return at::arange(n, at::kInt).mul_(7).add_(first);
}

Issued gather(Communicator& group, int64_t n, int64_t generation, int64_t number) {
  const int ranks = group.world_size();
  std::vector<at::Tensor> all;
  for (int r = 0; r < ranks; ++r) all.push_back(message(n, generation, number, r, 0));
  at::Tensor out = at::zeros({n * ranks}, at::kInt);
  at::Tensor in = message(n, generation, number, group.rank(), 0);
  return {group.all_gather(out, in, Traffic::kGather), out, at::cat(all)};
}

// Parts of different sizes, as when some ranks have no slot.
Issued exchange(Communicator& group, int64_t n, int64_t generation, int64_t number) {
  const int me = group.rank();
  const auto count = [n](int from, int to) { return n - 3 * from - to; };
  std::vector<at::Tensor> sent, expected;
  std::vector<int64_t> in_counts, out_counts;
  for (int r = 0; r < group.world_size(); ++r) {
    in_counts.push_back(count(me, r));
    out_counts.push_back(count(r, me));
    sent.push_back(message(in_counts.back(), generation, number, me, r));
    expected.push_back(message(out_counts.back(), generation, number, r, me));
  }
  const at::Tensor wanted = at::cat(expected);
  at::Tensor out = at::zeros({wanted.numel()}, at::kInt);
  return {group.all_to_all(out, out_counts, at::cat(sent), in_counts), out, wanted};
}

class Rank {
 public:
  Rank(const std::filesystem::path& page, Line line, const Case& test_case, int enters)
      : line_(std::move(line)), case_(test_case), enters_(enters) {
    set_up_process(1);
    turns_ = Turns::open(posix_file_system(), page).value();
  }
  [[noreturn]] void serve() {
    for (;;) {
      orders_ = turns_->next().value();
      take_turn();
    }
  }

 private:
  void take_turn() {
    RendezvousOptions options;
    options.rank = orders_.rank;
    options.world_size = orders_.world_size;
    options.local_world_size = orders_.local_world_size;
    options.store = orders_.store;
    options.prefix = text("g", orders_.generation);
    options.timeout_s = kCollectiveSeconds;
    Membership membership;
    if (auto joined = join(options); joined.ok())
      membership = std::move(joined).value();
    else
      return line_.say(joined.error().message);
    line_.say("joined");
    issued_ = 0;
    while (obey(*membership.communicator, line_.hear(10 * kAnswerMs))) {
    }
    destroy_in_background(std::move(membership));
  }

  // False: lets go of the generation.
  bool obey(Communicator& group, const std::string& order) {
    if (order == "enter") enter(group);
    if (order == "exchange and compare") line_.say(take_part(group));
    if (order == "compare") line_.say(compare());
    if (order == "leave" || order.empty()) ::_exit(kLeft);
    return order != "let go";
  }

  Issued issue(Communicator& group) {
    const bool gathers = std::string(case_.kind) == "gather";
    return (gathers ? gather : exchange)(group, case_.elements, orders_.generation, ++issued_);
  }

  // Until one does not end as it should: a rank may have left its part before it was stopped.
  void enter(Communicator& group) {
    for (int i = 0; i < enters_; ++i) {
      Issued one = issue(group);
      if (i == 0) line_.say("enters");
      const auto done = one.pending->wait();
      if (!done.ok()) return line_.say(done.error().code == Code::kPeerLost ? "lost" : "failed");
      if (!one.same()) return line_.say("wrong bits");
      kept_.push_back(std::move(one));
    }
    line_.say("done");
  }

  // Two under way at once, as in training.
  std::string take_part(Communicator& group) {
    std::vector<Issued> all;
    for (int i = 0; i < 2; ++i) all.push_back(issue(group));
    for (Issued& one : all) {
      if (auto done = one.pending->wait(); !done.ok()) return done.error().message;
      kept_.push_back(std::move(one));
    }
    return compare();
  }

  std::string compare() const {
    for (const Issued& one : kept_)
      if (!one.same()) return "wrong bits";
    return "same bits";
  }

  Line line_;
  std::unique_ptr<Turns> turns_;
  const Case case_;
  const int enters_;
  WorkerOrders orders_;
  int64_t issued_ = 0;
  std::list<Issued> kept_;  // of all generations
};

// --- What runs in the test's process.

std::string name_of(const Case& c) {
  return text(c.shared_memory ? "shared_memory_" : "gloo_", c.kind, "_of_", c.elements,
              c.joins_again ? "_joins_again" : "_leaves");
}
void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c); }

class RankProcess {
 public:
  // `enters`: so many collectives, when it is told to enter one.
  RankProcess(const std::filesystem::path& folder, const char* name, const Case& test_case,
              int enters)
      : page_path_(folder / name) {
    page_ = ProgressPage::open(page_path_).value();
    int ends[2];
    LOCKSTEP_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, name);
    fd_ = ends[0];
    line_.emplace(fd_);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    LOCKSTEP_CHECK(pid_ >= 0, name);
    if (pid_ > 0) {
      ::close(ends[1]);
      return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    Rank(page_path_, Line(ends[1]), test_case, enters).serve();
  }
  ~RankProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(fd_);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  void take_turn(const WorkerOrders& orders) {
    ASSERT_TRUE(test_support::eventually([&] { return page_->turn() == Turn::kParked; }));
    ASSERT_TRUE(write_orders(posix_file_system(), page_path_, orders).ok());
    page_->next_turn();
  }
  void halt() { page_->ask_to_halt(); }
  void say(const std::string& order) { line_->say(order); }
  // After a failure nobody is waited for.
  std::string hear(int timeout_ms = kAnswerMs) {
    return line_->hear(testing::Test::HasFailure() ? 0 : timeout_ms);
  }

  // Returns when its main thread waits for something.
  void await_asleep() const {
    ASSERT_TRUE(test_support::eventually([&] {
      const std::string stat = read_stream(text("/proc/", pid_, "/stat")).value();
      return stat.find(") S") != std::string::npos;
    }));
  }
  void stop() {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
  }
  bool has_ended() {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG | WUNTRACED) == 0) return false;
    ADD_FAILURE() << "status " << status;
    return true;
  }
  void wake() { ::kill(pid_, SIGCONT); }
  void leave() {
    say("leave");
    int status = 0;
    test_support::eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; });
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kLeft) << status;
    pid_ = -1;
  }

 private:
  std::filesystem::path page_path_;
  std::unique_ptr<ProgressPage> page_;
  int fd_ = -1;
  std::optional<Line> line_;
  pid_t pid_ = -1;
};

class StoppedRank : public testing::TestWithParam<Case> {
 protected:
  // Ranks of a generation, in order.
  void form(int64_t generation, const std::vector<RankProcess*>& ranks) {
    const auto world = std::ssize(ranks);
    for (int64_t r = 0; r < world; ++r) {
      WorkerOrders orders;
      orders.rank = static_cast<int>(r);
      orders.world_size = static_cast<int>(world);
      orders.local_world_size = GetParam().shared_memory ? orders.world_size : 1;
      orders.generation = generation;
      orders.store = text("file:", (folder / "store").string());
      ranks[static_cast<size_t>(r)]->take_turn(orders);
    }
    for (RankProcess* rank : ranks) ASSERT_EQ(rank->hear(), "joined");
    exchange_and_compare(ranks);
  }
  void exchange_and_compare(const std::vector<RankProcess*>& ranks) {
    for (RankProcess* rank : ranks) rank->say("exchange and compare");
    for (RankProcess* rank : ranks) ASSERT_EQ(rank->hear(), "same bits");
  }

  test_support::TempDir folder;
  RankProcess a{folder.path(), "a", GetParam(), 2}, b{folder.path(), "b", GetParam(), 1},
      c{folder.path(), "c", GetParam(), 2};
};

TEST_P(StoppedRank, HarmsNobodyWhenItWakes) {
  form(1, {&a, &b});
  b.say("enter");
  ASSERT_EQ(b.hear(), "enters");
  b.await_asleep();
  b.stop();
  a.say("enter");
  ASSERT_EQ(a.hear(), "enters");
  ASSERT_EQ(a.hear(kLookMs), "");  // it waits for B
  a.halt();
  ASSERT_EQ(a.hear(), "lost");
  a.say("let go");
  form(2, {&c, &a});
  exchange_and_compare({&a, &c});
  ASSERT_FALSE(b.has_ended());

  if (GetParam().joins_again) b.halt();
  b.wake();
  for (int i = 0; i < 3; ++i) exchange_and_compare({&a, &c});
  const std::string end = b.hear();
  EXPECT_TRUE(end == "lost" || end == "done") << end;
  ASSERT_FALSE(b.has_ended());
  exchange_and_compare({&a, &c});
  if (GetParam().joins_again) {
    for (RankProcess* rank : {&a, &b, &c}) rank->say("let go");
    form(3, {&b, &a, &c});
    exchange_and_compare({&a, &b, &c});
  }
  for (RankProcess* rank : {&a, &b, &c}) {
    if (rank == &b && !GetParam().joins_again) continue;
    rank->say("compare");
    EXPECT_EQ(rank->hear(), "same bits");
  }
  for (RankProcess* rank : {&a, &b, &c}) rank->leave();
}

// Small parts, and such as fill what a socket holds while nobody reads it.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* kind : {"gather", "exchange"})
    for (bool shared_memory : {false, true})
      for (int64_t elements : {int64_t{1000}, int64_t{1} << 20})
        for (bool joins_again : {false, true})
          all.push_back({kind, shared_memory, elements, joins_again});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, StoppedRank, testing::ValuesIn(cases()),
                         [](const auto& one) { return name_of(one.param); });

}  // namespace
}  // namespace lockstep::core
