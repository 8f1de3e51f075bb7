// Every fault at every call to the file system, on a disk in memory that can lose its power; HDF5's
// own writes are among the calls. Shared by the tests that run often and the slow ones.
#pragma once

#include <functional>

#include "checkpoint/record/attempt.h"
#include "tests/crash/faulty_for_some.h"
#include "tests/crash/scenarios.h"
#include "tests/crash/unsynced_file_system.h"
#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint::crash {

using lockstep::test_support::UnsyncedFileSystem;
using Path = std::filesystem::path;

inline constexpr int64_t kPrevious = 2, kNext = 3;  // saved before; saved at the fault
inline const Path kFolder = "/runs/demo/checkpoints";

// Who saves at the fault, and which of their calls are counted.
struct Saving {
  int ranks = 2;
  int ranks_per_file = 1;
  bool in_parts = false;                        // their manifest
  const char* calls_of = "";                    // what a file's name begins with; "": all calls
  int64_t least_before = 15, least_after = 10;  // calls without, and with, a commit
  std::function<void(UnsyncedFileSystem&)> look = {};  // at what the fault left
};

inline EngineOptions options_of(int64_t generation, const Saving& saving = {}) {
  EngineOptions options = options_in(kFolder, generation);
  options.retention.keep_latest_k = 2;
  options.ranks_per_file = saving.ranks_per_file;
  if (saving.in_parts) options.most_ranks_in_one_manifest = 0;
  return options;
}

// Steps 1 and 2 of generation 1, by 3 ranks, and what a killed save of generation 1 left.
inline std::unique_ptr<UnsyncedFileSystem> start_disk(
    const std::vector<test_support::TensorSpec>& model) {
  auto disk = std::make_unique<UnsyncedFileSystem>();
  World world(*disk, options_of(1), model, 3);
  for (int64_t step = 1; step <= kPrevious; ++step) EXPECT_TRUE(world.save(step)[0].committed);
  const Path rest = kFolder / "step_00000009.g1-7f2a91";
  EXPECT_TRUE(disk->make_directories(rest).ok() && disk->create(rest / "rank_00000.h5").ok());
  disk->lose_power();
  return disk;
}

// Ends the process of a scenario: nothing of the program runs any more.
inline void settle(UnsyncedFileSystem& disk, After after, int64_t k) {
  if (after == After::kPowerLoss) disk.lose_power();
  if (after == After::kPowerLossBySeed) disk.lose_power(static_cast<uint64_t>(k) * 7919);
}

// What a resume at another world size finds, checked bit by bit. -1: nothing.
inline int64_t recovered_step(FileSystem& disk, const std::vector<test_support::TensorSpec>& model,
                              int world_size, int64_t allowed_fallbacks = 0) {
  int64_t step = -1;
  for (int rank = 0; rank < world_size; ++rank) {
    RankState state = state_of(model, rank, world_size);
    const auto loaded = newest_valid(disk, kFolder, state.targets(), 1);
    if (!loaded.ok()) {
      ADD_FAILURE() << loaded.error().message;
      return -1;
    }
    EXPECT_LE(loaded.value().fallbacks, allowed_fallbacks);
    step = loaded.value().manifest.step;
    EXPECT_EQ(state.difference(step), "");
  }
  return step;
}

struct Outcome {
  bool met = false;        // the fault's call was made
  bool committed = false;  // all ranks were told so, and not that it is not
};

// Generation 2 starts, saves kNext and prunes; call `k` meets the scenario.
inline Outcome save_with_fault(UnsyncedFileSystem& disk,
                               const std::vector<test_support::TensorSpec>& model,
                               const Scenario& scenario, int64_t k, const Saving& saving = {}) {
  FaultyFileSystem faulty(disk, {.op = Op::kAny,
                                 .at_call = k,
                                 .fault = scenario.fault,
                                 .and_after = scenario.after != After::kGoOn});
  FaultyForSome faulty_for_some(disk, faulty, {kFolder, saving.calls_of, k});
  World world(faulty_for_some, options_of(2, saving), model, saving.ranks);
  Outcome outcome;
  if (world.error.empty()) {
    const auto reports = world.save(kNext);
    EXPECT_EQ(reports.size(), static_cast<size_t>(saving.ranks));
    const auto committed = std::count_if(reports.begin(), reports.end(),
                                         [](const SaveReport& r) { return r.committed; });
    outcome.committed = committed == saving.ranks;
    EXPECT_TRUE(outcome.committed || committed == 0);
  }
  outcome.met = faulty.calls(Op::kAny) >= k;
  if (scenario.after != After::kGoOn || !world.error.empty()) return outcome;
  faulty.set_plan({});  // the disk is well again: so are the saves
  const auto next = world.save(kNext + 1);
  for (const SaveReport& report : next) EXPECT_TRUE(report.committed) << report.error;
  EXPECT_EQ(recovered_step(disk, model, 1), kNext + 1);
  return outcome;
}

// Afterwards the next generation starts, saves, and leaves whole checkpoints alone.
inline void expect_clean_start(FileSystem& disk,
                               const std::vector<test_support::TensorSpec>& model) {
  World next(disk, options_of(3), model, 2);
  EXPECT_EQ(next.error, "");
  EXPECT_TRUE(next.save(kNext + 2)[0].committed);
  const auto entries = list_checkpoints(disk, kFolder).value();
  EXPECT_EQ(entries.size(), 2u);
  for (const auto& entry : entries)
    EXPECT_TRUE(entry.committed) << entry.directory << ": " << entry.problem;
}

inline void save_matrix(const Scenario& scenario,
                        const std::vector<test_support::TensorSpec>& model, int64_t stride,
                        const Saving& saving = {}) {
  const auto start = start_disk(model);
  int64_t before = 0, after = 0, k = 1;
  for (bool met = true; met; k += stride) {
    ASSERT_LT(k, 2000);
    SCOPED_TRACE(text(scenario.name, " at call ", k));
    const auto disk = start->copy();
    const Outcome outcome = save_with_fault(*disk, model, scenario, k, saving);
    met = outcome.met;
    settle(*disk, scenario.after, k);
    if (saving.look) saving.look(*disk);
    if (scenario.after != After::kGoOn) {
      const int64_t step = recovered_step(*disk, model, static_cast<int>(k % 4) + 1);
      EXPECT_TRUE(step == kPrevious || step == kNext) << step;
      EXPECT_TRUE(step == kNext || !outcome.committed) << "committed, and lost";
    }
    expect_clean_start(*disk, model);
    ++(outcome.committed ? after : before);
  }
  EXPECT_GT(before * stride, saving.least_before);
  EXPECT_GT(after * stride, saving.least_after);
}

}  // namespace lockstep::checkpoint::crash
