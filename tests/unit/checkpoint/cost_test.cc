// What saving, resuming, listing and pruning cost for W ranks, counted and not timed: each rank has
// a file system of its own that counts (counted_ranks.h).
#include "checkpoint/ballot/verdict.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/save/retention.h"
#include "checkpoint/tools/verify.h"
#include "tests/crash/unsynced_file_system.h"
#include "tests/support/cost_table.h"
#include "tests/support/ranks_at_once.h"
#include "tests/unit/checkpoint/counted_ranks.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::Cost;
using lockstep::test_support::CostTable;
using lockstep::test_support::ranks_at_once;
using lockstep::test_support::Tally;
using lockstep::test_support::UnsyncedFileSystem;
using test_support::CountedRanks;
using test_support::kFolder;
using test_support::model;

constexpr int kWorldSizes[] = {8, 16, 32, 64, 128, 256};
constexpr int kWorldSizesInParts[] = {64, 128, 256, 512};
constexpr int64_t kKept = 6;  // checkpoints that are there when one is saved

EngineOptions keep_all() {
  EngineOptions options = options_in(kFolder);
  options.retention.keep_latest_k = 0;
  options.vote_deadline = std::chrono::minutes(4);
  return options;
}

EngineOptions keep_all_in_parts() {
  EngineOptions options = keep_all();
  options.most_ranks_in_one_manifest = 0;
  return options;
}

// What each rank asked for since the last time.
void note(CostTable& table, const std::string& operation, CountedRanks& ranks) {
  std::vector<const Tally*> all;
  for (const Tally& tally : ranks.tallies) all.push_back(&tally);
  table.add(operation, static_cast<int64_t>(all.size()), all);
  ranks.reset();
}

// Every rank has sums of what it holds of all tensors.
void settle_all(CountedRanks& ranks, int world_size) {
  Fingerprints sums;
  for (int i = 0; i < 100; ++i) sums[text("param/model.layers.", i, ".weight")] = ~uint64_t{0} / 3;
  for (const auto& one : ranks_at_once(world_size, [&](int rank) {
         return settle(
             *ranks.lines[static_cast<size_t>(rank)], "resume", rank, world_size,
             Verdict::of(rank, sums), [](const Fingerprints&) { return Result<void>(); },
             std::chrono::milliseconds(60000));
       }))
    ASSERT_TRUE(one.ok() && !one.value());
}

void count(int world_size, const EngineOptions& options, CostTable& table) {
  UnsyncedFileSystem disk;
  CountedRanks ranks(disk, world_size, model(), options);
  ASSERT_EQ(ranks.world->error, "");
  for (int64_t step = 1; step <= kKept; ++step) ASSERT_TRUE(ranks.world->save(step)[0].committed);
  ranks.reset();
  const auto reports = ranks.world->save(kKept + 1);
  for (const SaveReport& report : reports) ASSERT_TRUE(report.committed) << report.error;
  note(table, "save", ranks);

  ASSERT_EQ(list_checkpoints(*ranks.seams[0], kFolder).value().size(), kKept + 1);
  note(table, "list", ranks);

  for (int r = 0; r < world_size; ++r) {
    FileSystem& own = *ranks.seams[static_cast<size_t>(r)];
    RankState state = state_of(model(), r, world_size);
    const Manifest manifest = read_manifest_for(own, reports[0].directory, state.targets()).value();
    ASSERT_TRUE(load_pieces(own, reports[0].directory, manifest, state.targets(), 1).ok());
    ASSERT_EQ(state.difference(kKept + 1), "");
  }
  note(table, "load", ranks);

  for (int r = 0; r < world_size; ++r)
    ASSERT_TRUE(
        verify_share(*ranks.seams[static_cast<size_t>(r)], reports[0].directory, {r, world_size}, 1)
            .ok());
  note(table, "verify", ranks);

  settle_all(ranks, world_size);
  note(table, "settle", ranks);

  const auto newest = list_from_newest(*ranks.seams[0], kFolder).value();
  ASSERT_EQ(newest[0].directory, reports[0].directory);
  note(table, "find the newest", ranks);

  Catalog catalog(*ranks.seams[0], kFolder);
  ASSERT_EQ(catalog.look().value().size(), kKept + 1);
  ranks.reset();
  ASSERT_EQ(prune(*ranks.seams[0], catalog, {.keep_latest_k = kKept}, 1).value().size(), 1u);
  note(table, "prune", ranks);
}

void expect(const CostTable::Growth& growth, double most, const std::string& where) {
  EXPECT_LE(growth.exponent, most) << growth.what << " of " << where;
}

// Of many ranks: what was in one manifest is in parts, of which there are as many as ranks in one.
TEST(Cost, InPartsNothingOfAManifestGrowsFasterThanTheSquareRoot) {
  CostTable table;
  for (const int world_size : kWorldSizesInParts) count(world_size, keep_all_in_parts(), table);
  table.print(std::cout);
  for (const std::string operation :
       {"save", "list", "find the newest", "load", "verify", "settle"})
    expect(table.busiest_growth(operation), 0.55, operation + ", at the busiest rank");
  for (const std::string operation : {"save", "load", "verify"})
    expect(table.mean_growth(operation, {Cost::kReadBytes}), 0.1, operation + ", per rank");
  expect(table.busiest_growth("prune", {Cost::kRemoves}), 0.1, "prune, but for what it removes");
}

TEST(Cost, NothingGrowsFasterThanItMay) {
  CostTable table;
  for (const int world_size : kWorldSizes) count(world_size, keep_all(), table);
  table.print(std::cout);
  for (const std::string operation :
       {"save", "list", "find the newest", "load", "verify", "settle", "prune"})
    expect(table.busiest_growth(operation), 1.05, operation + ", at the busiest rank");
  expect(table.mean_growth("settle"), 0.1, "settle, per rank");
  expect(table.mean_growth("save", {Cost::kStoreBytes}), 0.1, "save, per rank");
  // Votes are passed on once where there is more than one group: twice the bytes, at any number.
  expect(table.mean_growth("save"), 0.2, "save, per rank, with the votes");
  // Every rank reads the manifest of all.
  for (const std::string operation : {"load", "verify"})
    expect(table.mean_growth(operation, {Cost::kReadBytes}), 0.1, operation + ", per rank");
  // A manifest is as long as there are ranks; what is done to find one is the same for any number.
  for (const std::string operation : {"list", "find the newest"})
    expect(table.busiest_growth(operation, {Cost::kReadBytes}), 0.1, operation);
  expect(table.busiest_growth("prune", {Cost::kRemoves}), 0.1, "prune, but for what it removes");
  // But for the votes, which hold the parts of the manifest, rank 0 writes and reads no more.
  expect(table.busiest_growth("save", {Cost::kWrittenBytes, Cost::kRequests, Cost::kStoreBytes}),
         0.1, "save, on the disk");
  expect(table.busiest_growth("settle"), 0.5, "settle, at the busiest rank");
}

// What all ranks of a save ask of the file system together.
int64_t asked(const CountedRanks& ranks, Cost cost) {
  int64_t sum = 0;
  for (const Tally& tally : ranks.tallies) sum += tally.of(cost);
  return sum;
}

// A rank whose neighbour writes its state makes none of the calls that each rank made.
TEST(Cost, RanksThatShareAFileMakeAQuarterOfTheFiles) {
  constexpr int kRanks = 64, kRanksAFile = 4, kOthers = kRanks - kRanks / kRanksAFile;
  CostTable table;
  std::map<Cost, int64_t> saved;
  for (const int ranks_per_file : {1, kRanksAFile}) {
    EngineOptions options = keep_all();
    options.ranks_per_file = ranks_per_file;
    UnsyncedFileSystem disk;
    CountedRanks ranks(disk, kRanks, model(), options);
    ASSERT_EQ(ranks.world->error, "");
    for (int64_t step = 1; step <= kKept; ++step) ASSERT_TRUE(ranks.world->save(step)[0].committed);
    ranks.reset();
    ASSERT_TRUE(ranks.world->save(kKept + 1)[0].committed);
    for (const Cost cost : {Cost::kCreates, Cost::kSyncs, Cost::kMkdirs})
      saved[cost] = asked(ranks, cost) - saved[cost];
    note(table, text("save, ranks a file: ", ranks_per_file), ranks);
  }
  table.print(std::cout);
  EXPECT_EQ(-saved[Cost::kCreates], kOthers);
  EXPECT_EQ(-saved[Cost::kMkdirs], kOthers);
  EXPECT_EQ(-saved[Cost::kSyncs], 3 * kOthers) << "the folder, the file and its directory";
}

}  // namespace
}  // namespace lockstep::checkpoint
