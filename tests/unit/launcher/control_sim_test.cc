// Many simulated jobs (control_sim.h), each from its seed, on all cores. A seed that breaks a rule
// is printed.
//   launcher_control_sim [SEEDS [FIRST]]        runs so many, 500 when nothing is said, from
//                                               FIRST on or from what LOCKSTEP_SEED says
//   launcher_control_sim --seed N [RULE]        one, and tells what happens in it; without the rule
//   launcher_control_sim --up-to NODES ...      either of these, of jobs of 1 to so many nodes (a
//                                               power of two) instead of 1 to 4096
//   launcher_control_sim --nodes NODES ...      ... of jobs of so many
//   launcher_control_sim --rules                the recorded seed of each rule of docs/PROTOCOL.md
//                                               passes with that rule; without it the rule's check
//                                               fails, and where nothing asserts it the job breaks
//   launcher_control_sim --find SEEDS [RULE]    the first seeds that fail without each rule, of
//                                               at most 64 nodes
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "control_sim.h"
#include "tests/support/seed.h"

namespace {

using lockstep::launcher::control::kRules;
using lockstep::launcher::control::Rule;
using lockstep::launcher::control::rule_not_asserted;
using lockstep::launcher::control::Sim;
using lockstep::launcher::control::SimNodes;
using lockstep::launcher::control::SimResult;

constexpr int64_t kSmall = 64;  // nodes

// A seed that fails without its rule. Where a change of the protocol or of the simulation lets it
// pass, `--find` finds another one. docs/PROTOCOL.md says what shows the other rules.
struct Recorded {
  Rule without;
  uint64_t seed;
};
constexpr Recorded kRecorded[] = {
    {Rule::kP2, 2},   {Rule::kP3, 49},  {Rule::kP4, 159},  {Rule::kP5, 85},
    {Rule::kP6, 79},  {Rule::kP7, 2},   {Rule::kP21, 135}, {Rule::kP22, 206},
    {Rule::kP24, 28}, {Rule::kP25, 28}, {Rule::kP26, 83},
};

// What was broken without the rule in a process of its own, which ends where a check fails; empty:
// nothing.
std::string broken_without(Rule rule, uint64_t seed, bool asserted) {
  std::fflush(stdout);
  int ends[2];
  const pid_t pid = ::pipe(ends) == 0 ? ::fork() : -1;
  if (pid < 0) std::perror("a process for a job"), std::exit(2);
  if (pid == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    rule_not_asserted = asserted ? Rule::kNone : rule;
    const std::string broken = Sim(seed, rule).run().broken;
    ::_exit(::write(ends[1], broken.data(), broken.size()) == std::ssize(broken) ? 0 : 2);
  }
  ::close(ends[1]);
  std::string said;
  std::array<char, 4096> bytes;
  for (ssize_t got = 0; (got = ::read(ends[0], bytes.data(), bytes.size())) > 0;)
    said.append(bytes.data(), static_cast<size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return said;
  const size_t check = said.find("CHECK failed");
  return check == said.npos ? "it ended, and no check failed: " + said
                            : said.substr(check, said.find('\n', check) - check);
}

// Of this thread, for what is said when a check fails.
thread_local uint64_t seed_at_hand = 0;

void name_seed(int) {
  char line[96];
  const int length = std::snprintf(line, sizeof line, "FAILED seed %llu: a check failed\n",
                                   static_cast<unsigned long long>(seed_at_hand));
  (void)!::write(STDOUT_FILENO, line, static_cast<size_t>(length));
}

int replay(uint64_t seed, Rule without, SimNodes nodes) {
  const SimResult result = Sim(seed, without, /*loud=*/true, nodes).run();
  std::printf("seed %llu: %lld nodes, %s\n", static_cast<unsigned long long>(seed),
              static_cast<long long>(result.nodes),
              result.broken.empty() ? "ok" : result.broken.c_str());
  return result.broken.empty() ? 0 : 1;
}

int check_rules() {
  int failures = 0;
  for (const auto& [without, seed] : kRecorded) {
    const int number = static_cast<int>(without);
    const std::string with = broken_without(Rule::kNone, seed, /*asserted=*/true);
    const std::string check = broken_without(without, seed, /*asserted=*/true);
    const std::string job = broken_without(without, seed, /*asserted=*/false);
    // The workers keep these two, and the simulation models workers.
    const bool of_workers = without == Rule::kP24 || without == Rule::kP25;
    const bool own = of_workers || check.find("[P" + std::to_string(number) + "]") != check.npos;
    const bool found = with.empty() && own && !job.empty() && !job.starts_with("CHECK");
    if (!found) ++failures;
    std::printf("%s P%d, seed %llu: %s\n  %s\n  %s\n", found ? "found" : "FAILED", number,
                static_cast<unsigned long long>(seed), with.c_str(), check.c_str(), job.c_str());
  }
  return failures == 0 ? 0 : 1;
}

// Prints up to kShown seeds for each rule; a rule that no seed finds is printed as well.
int find(uint64_t seeds, int only) {
  constexpr int kShown = 3;
  for (int rule = 1; rule <= kRules; ++rule) {
    if (only > 0 && rule != only) continue;
    int shown = 0;
    for (uint64_t seed = 1; seed <= seeds && shown < kShown; ++seed) {
      const Sim sim(seed, static_cast<Rule>(rule));
      if (sim.nodes() > kSmall) continue;
      const std::string broken = broken_without(static_cast<Rule>(rule), seed, /*asserted=*/false);
      if (broken.empty()) continue;
      ++shown;
      std::printf("P%d seed %llu, %lld nodes: %s\n", rule, static_cast<unsigned long long>(seed),
                  static_cast<long long>(sim.nodes()), broken.c_str());
    }
    if (shown == 0) std::printf("P%d is not found\n", rule);
    std::fflush(stdout);
  }
  return 0;
}

// `sizes`: the words of the command line that say the same as `nodes`.
int run_all(uint64_t seeds, uint64_t first, SimNodes nodes, const std::string& sizes) {
  std::vector<SimResult> results(seeds);
  std::atomic<uint64_t> next = 0;
  const auto work = [&] {
    for (uint64_t i = next++; i < seeds; i = next++) {
      seed_at_hand = first + i;
      results[i] = Sim(first + i, Rule::kNone, /*loud=*/false, nodes).run();
    }
  };
  std::signal(SIGABRT, name_seed);
  std::vector<std::thread> threads(std::max(1u, std::thread::hardware_concurrency()));
  for (std::thread& thread : threads) thread = std::thread(work);
  for (std::thread& thread : threads) thread.join();
  SimResult sum;
  int failures = 0;
  for (uint64_t i = 0; i < seeds; ++i) {
    const SimResult& result = results[i];
    sum.nodes += result.nodes;
    sum.generations += result.generations;
    sum.takeovers += result.takeovers;
    sum.steps += result.steps;
    sum.events += result.events;
    sum.faults += result.faults;
    sum.commits += result.commits;
    sum.refused += result.refused;
    sum.barred += result.barred;
    sum.changes += result.changes;
    sum.ends += result.ends;
    if (result.broken.empty()) continue;
    ++failures;
    const auto seed = static_cast<unsigned long long>(first + i);
    std::printf("FAILED seed %llu, %lld nodes, %s (launcher_control_sim %s--seed %llu)\n", seed,
                static_cast<long long>(result.nodes), result.broken.c_str(), sizes.c_str(), seed);
  }
  std::printf(
      "%llu seeds: %lld nodes, %lld generations, %lld takeovers, %lld faults, %lld steps, "
      "%lld commits (%lld refused), %lld events, %lld barred, %lld ends, %lld planned changes; %d "
      "failed\n",
      static_cast<unsigned long long>(seeds), static_cast<long long>(sum.nodes),
      static_cast<long long>(sum.generations), static_cast<long long>(sum.takeovers),
      static_cast<long long>(sum.faults), static_cast<long long>(sum.steps),
      static_cast<long long>(sum.commits), static_cast<long long>(sum.refused),
      static_cast<long long>(sum.events), static_cast<long long>(sum.barred),
      static_cast<long long>(sum.ends), static_cast<long long>(sum.changes), failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  SimNodes nodes;
  std::string sizes;
  const std::string_view how = argc >= 3 ? argv[1] : "";
  if (how == "--up-to" || how == "--nodes") {
    nodes = {std::max<int64_t>(std::strtoll(argv[2], nullptr, 10), 1), how == "--nodes"};
    sizes = std::string(how) + " " + argv[2] + " ";
    argc -= 2;
    argv += 2;
  }
  const auto number = [&](int at, uint64_t otherwise) {
    return argc > at ? std::strtoull(argv[at], nullptr, 10) : otherwise;
  };
  const auto rule = [&](int at) {
    return static_cast<Rule>(std::min<uint64_t>(number(at, 0), kRules));
  };
  if (argc >= 3 && std::strcmp(argv[1], "--seed") == 0) return replay(number(2, 1), rule(3), nodes);
  if (argc == 2 && std::strcmp(argv[1], "--rules") == 0) return check_rules();
  if (argc >= 3 && std::strcmp(argv[1], "--find") == 0)
    return find(number(2, 1), static_cast<int>(rule(3)));
  return run_all(number(1, 500), number(2, lockstep::test_support::seed_or(1)), nodes, sizes);
}
