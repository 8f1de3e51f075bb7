// One wait, order or buffer rule of a device that is left out, and whether a run notices.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/core/sim_training.h"

namespace lockstep::core {

// One rule at its calls: all whose `what` begins with the words, with so many elements.
struct LeftOut {
  SimCall::Rule rule;
  std::string what;
  int64_t elements = 0;  // 0: any

  bool matches(const SimCall& call) const {
    return call.rule == rule && call.what.starts_with(what) &&
           (elements == 0 || call.elements == elements);
  }
};

struct Mutation {
  const char* name;
  std::vector<LeftOut> left_out;
  SimRun run;
  uint64_t seed;  // one that finds it

  SimWorld::Options options(uint64_t of_seed) const {
    return {.seed = of_seed, .leaves_out = [this](const SimCall& call) {
              return std::any_of(left_out.begin(), left_out.end(),
                                 [&](const LeftOut& one) { return one.matches(call); });
            }};
  }
};

// Whether the run, in a process of its own, does not come to `want`: other bits, an error, a check
// that fails, or an end by a signal.
inline bool goes_wrong(const Mutation& mutation, uint64_t seed, const Curve& want) {
  constexpr unsigned kSeconds = 120;
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSeconds);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);  // a check that fails says so there
    auto got = train_on_sim(mutation.run, mutation.options(seed));
    _exit(got.ok() && *got == want ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status != 0;
}

}  // namespace lockstep::core
