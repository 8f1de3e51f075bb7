// Each rule of sim_mutations.h, left out, is found: here by its recorded seed, and by how many of
// 200 in sim_soak_test.
#include "tests/unit/core/sim_mutations.h"

#include <ATen/Parallel.h>

#include "tests/support/seed.h"

namespace lockstep::core {
namespace {

TEST(SimMutations, EachRuleLeftOutIsFoundByItsSeed) {
  at::set_num_threads(1);  // a process that forks has no threads of LibTorch's
  for (const Mutation& mutation : mutations()) {
    auto want = train_on_sim(mutation.run, {.seed = mutation.seed});
    ASSERT_TRUE(want.ok()) << mutation.name << ": " << want.error().message;
    EXPECT_TRUE(goes_wrong(mutation, mutation.seed, *want)) << mutation.name;
  }
}

}  // namespace
}  // namespace lockstep::core
