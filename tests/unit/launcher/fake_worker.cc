// A worker that trains nothing: it walks its progress page through steps and misbehaves as told.
//   fake_worker STEPS [RULE…]
// RULE = GENERATION:RANK:STEP:ACTION. ACTION: exit<code>, signal<number>, hang, stop (SIGSTOP).
// `*` as a rank means every rank. A `!` as first letter of the action makes the others of that
// generation lose a peer: a moment after that one is dead.
// Every 4th step is committed; a new generation resumes after the newest commit, which rank 0 keeps
// in FAKE_WORKER_STATE. The others wait for it, as in a save. The run also ends with the commit
// before which rank 0 finds a file of that name and ".enough": it says so in ".last" first, so that
// all ranks end with the same step.
// With FAKE_WORKER_EVENTS, the path of events.jsonl, a generation goes no further than its 4th step
// before its first one is recorded there.
// Special rules: ignore_term; child (rank 0 starts a process that sleeps); logs (rank 0 says so, on
// the console as well); deaf (nobody looks whether the generation is over);
// device (a process serves one generation, as one that computes on a GPU).
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/text.h"
#include "worker_link/progress_page.h"
#include "worker_link/worker_orders.h"

namespace {

using namespace lockstep;

volatile std::sig_atomic_t g_stop = 0;
void on_term(int) { g_stop = 1; }

WorkerOrders g_orders;

constexpr int64_t kStepNs = 10'000'000;
constexpr int64_t kCommitEvery = 4;

void act(const std::string& action) {
  if (action.starts_with("exit")) {
    std::fprintf(stderr, "about to leave with %s\n", action.c_str());
    ::_exit(std::atoi(action.c_str() + 4));
  }
  if (action.starts_with("signal")) {
    const int signal = std::atoi(action.c_str() + 6);
    std::signal(signal, SIG_DFL);  // a sanitizer would make a report, and an exit, of SIGSEGV
    ::kill(::getpid(), signal);
  }
  if (action == "stop") ::raise(SIGSTOP);
  for (;;) ::pause();
}

std::string state_path() { return std::getenv("FAKE_WORKER_STATE"); }

// Where the rank that is to die writes its process id.
std::string culprit_path() { return text(state_path(), ".culprit", g_orders.generation); }

// Returns when that process is dead, so that its agent can see so.
void await_culprit() {
  Result<std::string> pid = Error{Code::kNotFound, ""};
  for (; !pid; pid = read_file(posix_file_system(), culprit_path()))
    system_clock().sleep_ns(kStepNs / 10);
  const long pidfd = ::syscall(SYS_pidfd_open, parse_number<int>(pid.value()).value(), 0);
  pollfd ends{static_cast<int>(pidfd), POLLIN, 0};
  if (pidfd >= 0) ::poll(&ends, 1, -1);
  if (pidfd >= 0) ::close(static_cast<int>(pidfd));
}

// What the rules say for this step: an action for us, or that a peer has died: false.
bool obey(const std::vector<std::string>& rules, int64_t step) {
  for (const std::string& rule : rules) {
    const auto parts = split(rule, ':');
    if (parts.size() != 4 || parse_number(parts[0]) != g_orders.generation ||
        parse_number(parts[2]) != step)
      continue;
    const bool tells_peers = parts[3].starts_with("!");
    const std::string action = parts[3].substr(tells_peers ? 1 : 0);
    if (parts[1] == "*" || parse_number(parts[1]) == g_orders.rank) {
      if (tells_peers &&
          !publish_file(posix_file_system(), culprit_path(), std::to_string(::getpid())))
        ::_exit(70);
      act(action);
    }
    if (tells_peers) {
      await_culprit();
      std::fprintf(stderr, "connection reset by peer\n");
      return false;
    }
  }
  return true;
}

int64_t committed_step(const std::string& state) {
  const auto contents = read_file(posix_file_system(), state);
  return contents ? parse_number(contents.value()).value() : -1;
}

bool commit(const std::string& state, int64_t step) {
  FileSystem& files = posix_file_system();
  if (files.exists(state + ".enough") && !publish_file(files, state + ".last", "")) return false;
  return publish_file(files, state, std::to_string(step)).ok();
}

constexpr int kOver = -1;  // the generation, not this process

// Whether the agent has recorded the first step of our generation; true when nobody asked.
bool first_step_is_recorded() {
  const char* const events = std::getenv("FAKE_WORKER_EVENTS");
  if (events == nullptr) return true;
  const auto contents = read_file(posix_file_system(), events);
  const std::string line =
      text("\"event\":\"first_step\",\"generation\":", g_orders.generation, ",");
  return contents && contents.value().find(line) != std::string::npos;
}

// Until `done` or a signal; false: the generation is over.
template <typename Done>
bool wait_until(const ProgressPage& page, bool deaf, Done&& done) {
  while (!done() && !g_stop) {
    if (!deaf && page.turn() == Turn::kHalt) return false;
    system_clock().sleep_ns(kStepNs / 5);
  }
  return true;
}

// One generation: an exit code, or kOver.
int run(ProgressPage& page, int64_t steps, const std::vector<std::string>& rules, bool deaf) {
  const int64_t rank = g_orders.rank;
  const std::string state = state_path();
  page.set_phase(0, Phase::kLoad);
  const int64_t resumed = committed_step(state);
  if (resumed >= 0) page.set_committed_step(resumed);
  for (int64_t step = std::max<int64_t>(resumed + 1, 1); step <= steps; ++step) {
    page.set_phase(step, Phase::kStep);
    system_clock().sleep_ns(kStepNs);
    if (!deaf && page.turn() == Turn::kHalt) return kOver;
    if (!obey(rules, step)) return kOver;
    page.set_slot_us(kStepNs / 1000);
    if (rank == 0) std::printf("step: %ld generation: %ld\n", step, g_orders.generation);
    std::fflush(stdout);
    const bool commits = step % kCommitEvery == 0 || g_stop;
    if (commits && rank == 0 && !commit(state, step)) return 70;
    if (commits && !wait_until(page, deaf, [&] { return committed_step(state) >= step; }))
      return kOver;
    if (commits) page.set_committed_step(step);
    if (g_stop) return 75;
    if (!commits) continue;
    // Now computing and now not, so that the agent sees a step that is complete.
    for (bool saves = true; !first_step_is_recorded() && !g_stop; saves = !saves) {
      if (!deaf && page.turn() == Turn::kHalt) return kOver;
      page.set_phase(step, saves ? Phase::kSave : Phase::kStep);
      system_clock().sleep_ns(3 * kStepNs);
    }
    if (posix_file_system().exists(state + ".last")) steps = step;
  }
  page.set_phase(steps, Phase::kDone);
  return 0;
}

int serve(int argc, char** argv) {
  const std::vector<std::string> rules(argv + 2, argv + argc);
  const auto has = [&](const char* word) {
    return std::find(rules.begin(), rules.end(), word) != rules.end();
  };
  if (!has("ignore_term"))
    std::signal(SIGTERM, on_term);
  else
    std::signal(SIGTERM, SIG_IGN);
  auto told = parse_worker_orders(own_environment());
  if (!told) return 64;
  g_orders = std::move(told).value();
  const std::filesystem::path path = g_orders.progress_page;
  auto page = ProgressPage::open(path);
  if (!page) return 70;
  if (has("device")) (*page)->say_serves_one();
  if (g_orders.rank == 0 && has("child") && ::fork() == 0)
    for (;;) ::pause();
  if (g_orders.rank == 0 && has("logs")) {
    show_log_on_stdout(true);
    log_warning("the disk is slow");
    log_info("of no interest");
  }
  for (bool later = g_orders.serves == Serves::kLater;; later = false) {
    const int status = later ? kOver : run(**page, std::atoll(argv[1]), rules, has("deaf"));
    if (status != kOver) return status;
    if (!later && has("device")) return 76;
    g_stop = 0;
    (*page)->park();
    auto orders = read_orders(posix_file_system(), path);
    if (!orders || !redirect_output(orders.value())) return 70;
    g_orders = std::move(orders).value();
  }
}

}  // namespace

int main(int argc, char** argv) { return serve(argc, argv); }
