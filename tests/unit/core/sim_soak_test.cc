// How many of 200 seeds find each rule of sim_mutations.h that is left out, and the first of them.
#include <ATen/Parallel.h>
#include <iomanip>
#include <iostream>

#include "tests/support/seed.h"
#include "tests/unit/core/sim_mutations.h"

namespace lockstep::core {
namespace {

constexpr uint64_t kSeeds = 200;

class Sim : public testing::Environment {
  void SetUp() override { use_sim(); }
};
[[maybe_unused]] testing::Environment* const sim = testing::AddGlobalTestEnvironment(new Sim);

TEST(SimSoak, EachRuleLeftOutIsFoundWithin200Seeds) {
  at::set_num_threads(1);
  const uint64_t first = test_support::seed_or(1);
  for (const Mutation& mutation : mutations()) {
    auto want = train_on_sim(mutation.run, {.seed = first});
    ASSERT_TRUE(want.ok()) << mutation.name << ": " << want.error().message;
    uint64_t found = 0, by = 0;
    for (uint64_t seed = first; seed < first + kSeeds; ++seed)
      if (goes_wrong(mutation, seed, *want) && found++ == 0) by = seed;
    std::cout << std::setw(3) << found << " of " << kSeeds << ", first " << std::setw(3) << by
              << ": " << mutation.name << std::endl;
    EXPECT_GT(found, 0u) << mutation.name;
  }
}

}  // namespace
}  // namespace lockstep::core
