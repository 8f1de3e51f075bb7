// A worker that trains nothing: it walks its progress page through steps and misbehaves as told.
//   fake_worker STEPS [RULE…]
// RULE = GENERATION:RANK:STEP:ACTION. ACTION: exit<code>, signal<number>, hang, stop (SIGSTOP).
// `*` as a rank means every rank. A `!` as first letter of the action makes the others of that
// generation lose a peer a moment later.
// Every 4th step is committed; a new generation resumes after the newest commit, which rank 0 keeps
// in FAKE_WORKER_STATE. Special rules: ignore_term; child (rank 0 starts a process that sleeps);
// logs (rank 0 says so, on the console as well).
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
#include "worker_link/turn_orders.h"

namespace {

using namespace lockstep;

volatile std::sig_atomic_t g_stop = 0;
void on_term(int) { g_stop = 1; }

Variables g_orders;  // of a later turn

int64_t variable(const char* name) {
  if (const auto found = g_orders.find(name); found != g_orders.end())
    return std::atoll(found->second.c_str());
  const char* value = std::getenv(name);
  return value == nullptr ? -1 : std::atoll(value);
}

constexpr int64_t kStepNs = 10'000'000;
constexpr int64_t kCommitEvery = 4;

void act(const std::string& action) {
  if (action.starts_with("exit")) {
    std::fprintf(stderr, "about to leave with %s\n", action.c_str());
    ::_exit(std::atoi(action.c_str() + 4));
  }
  if (action.starts_with("signal")) ::kill(::getpid(), std::atoi(action.c_str() + 6));
  if (action == "stop") ::raise(SIGSTOP);
  for (;;) ::pause();
}

// What the rules say for this step: an action for us, or that a peer is about to die: false.
bool obey(const std::vector<std::string>& rules, int64_t step) {
  for (const std::string& rule : rules) {
    const auto parts = split(rule, ':');
    if (parts.size() != 4 || std::stoll(parts[0]) != variable("LOCKSTEP_GENERATION") ||
        std::stoll(parts[2]) != step)
      continue;
    const bool tells_peers = parts[3].starts_with("!");
    const std::string action = parts[3].substr(tells_peers ? 1 : 0);
    if (parts[1] == "*" || std::stoll(parts[1]) == variable("RANK")) act(action);
    if (tells_peers) {
      system_clock().sleep_ns(3 * kStepNs);
      std::fprintf(stderr, "connection reset by peer\n");
      return false;
    }
  }
  return true;
}

int64_t committed_step(const std::string& state) {
  const auto contents = read_file(posix_file_system(), state);
  return contents ? std::stoll(contents.value()) : -1;
}

constexpr int kOver = -1;  // the generation, not this process

// One generation: an exit code, or kOver.
int run(ProgressPage& page, int64_t steps, const std::vector<std::string>& rules, bool deaf) {
  const int64_t rank = variable("RANK");
  const std::string state = std::getenv("FAKE_WORKER_STATE");
  page.set_phase(0, Phase::kLoad);
  int64_t committed = committed_step(state);
  if (committed >= 0) page.set_committed_step(committed);
  for (int64_t step = committed + 1; step <= steps; ++step) {
    if (step == 0) continue;
    page.set_phase(step, Phase::kStep);
    system_clock().sleep_ns(kStepNs);
    if (!deaf && page.turn() == Turn::kHalt) return kOver;
    if (!obey(rules, step)) return kOver;
    page.set_slot_us(kStepNs / 1000);
    if (rank == 0)
      std::printf("step: %ld generation: %ld\n", step, variable("LOCKSTEP_GENERATION"));
    std::fflush(stdout);
    if (step % kCommitEvery == 0 || g_stop) {
      if (rank == 0 && !publish_file(posix_file_system(), state, std::to_string(step))) return 70;
      page.set_committed_step(step);
    }
    if (g_stop) return 75;
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
  const std::filesystem::path path = std::getenv("LOCKSTEP_PROGRESS_PAGE");
  auto page = ProgressPage::open(path);
  if (!page) return 70;
  if (variable("RANK") == 0 && has("child") && ::fork() == 0)
    for (;;) ::pause();
  if (variable("RANK") == 0 && has("logs")) {
    show_log_on_stdout(true);
    log_warning("the disk is slow");
    log_info("of no interest");
  }
  for (bool later = std::getenv("LOCKSTEP_TURNS") == std::string("later");; later = false) {
    const int status = later ? kOver : run(**page, std::atoll(argv[1]), rules, has("deaf"));
    if (status != kOver) return status;
    g_stop = 0;
    (*page)->park();
    auto orders = read_orders(posix_file_system(), path);
    if (!orders || !redirect_output(orders.value())) return 70;
    g_orders = std::move(orders).value();
  }
}

}  // namespace

int main(int argc, char** argv) { return serve(argc, argv); }
