// The crash matrix at every call again, on pieces of several chunks.
#include "tests/crash/crash_matrix.h"

namespace lockstep::checkpoint::crash {
namespace {

TEST(CrashMatrixSlow, EveryCallOnPiecesOfSeveralChunks) {
  for (const Scenario& scenario : kScenarios) {
    save_matrix(scenario, large_model(), 1);
    save_matrix(scenario, large_model(), 1,
                {.ranks = 5,
                 .ranks_per_file = 4,
                 .calls_of = "rank_",
                 .least_before = 5,
                 .least_after = 0});
  }
}

// What the kernel had written back differs each time.
TEST(CrashMatrixSlow, ManyWaysToLoseSomeOfWhatWasNotSynced) {
  const auto start = start_disk(odd_model());
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    bool met = true;
    for (int64_t k = 1; met; ++k) {
      SCOPED_TRACE(text("seed ", seed, " call ", k));
      const auto disk = start->copy();
      const Scenario scenario{"", Fault::kShortWrite, After::kPowerLossBySeed};
      const Outcome outcome = save_with_fault(*disk, odd_model(), scenario, k);
      met = outcome.met;
      disk->lose_power(seed << 32 | static_cast<uint64_t>(k));
      const int64_t step = recovered_step(*disk, odd_model(), 1);
      EXPECT_TRUE(step == kNext || (step == kPrevious && !outcome.committed)) << step;
      expect_clean_start(*disk, odd_model());
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint::crash
