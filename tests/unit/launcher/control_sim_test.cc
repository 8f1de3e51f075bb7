// Many simulated jobs (control_sim.h), each from its seed, on all cores. A seed that breaks a rule
// is printed.
//   launcher_control_sim [SEEDS [FIRST]]   runs so many, 500 when nothing is said, from FIRST on
//                                          or from what LOCKSTEP_SEED says (support/seed.h)
//   launcher_control_sim --seed N          one, and tells what happens in it
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "control_sim.h"
#include "tests/support/seed.h"

namespace {

using lockstep::launcher::control::Sim;
using lockstep::launcher::control::SimResult;

int replay(uint64_t seed) {
  const SimResult result = Sim(seed, /*loud=*/true).run();
  std::printf("seed %llu: %lld nodes, %s\n", static_cast<unsigned long long>(seed),
              static_cast<long long>(result.nodes),
              result.broken.empty() ? "ok" : result.broken.c_str());
  return result.broken.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--seed") == 0)
    return replay(std::strtoull(argv[2], nullptr, 10));
  const uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 500;
  const uint64_t first =
      argc > 2 ? std::strtoull(argv[2], nullptr, 10) : lockstep::test_support::seed_or(1);
  std::vector<SimResult> results(seeds);
  std::atomic<uint64_t> next = 0;
  const auto work = [&] {
    for (uint64_t i = next++; i < seeds; i = next++) results[i] = Sim(first + i).run();
  };
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
    sum.ends += result.ends;
    if (result.broken.empty()) continue;
    ++failures;
    const auto seed = static_cast<unsigned long long>(first + i);
    std::printf("FAILED seed %llu, %lld nodes, %s (launcher_control_sim --seed %llu)\n", seed,
                static_cast<long long>(result.nodes), result.broken.c_str(), seed);
  }
  std::printf(
      "%llu seeds: %lld nodes, %lld generations, %lld takeovers, %lld faults, %lld steps, "
      "%lld commits (%lld refused), %lld events, %lld ends; %d failed\n",
      static_cast<unsigned long long>(seeds), static_cast<long long>(sum.nodes),
      static_cast<long long>(sum.generations), static_cast<long long>(sum.takeovers),
      static_cast<long long>(sum.faults), static_cast<long long>(sum.steps),
      static_cast<long long>(sum.commits), static_cast<long long>(sum.refused),
      static_cast<long long>(sum.events), static_cast<long long>(sum.ends), failures);
  return failures == 0 ? 0 : 1;
}
