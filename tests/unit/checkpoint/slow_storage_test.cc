// Saving and resuming on a slow shared file system: a call of a millisecond, 1,024 ranks, 100
// checkpoints kept. The clock is simulated (counted_ranks.h), so that no machine is too slow.
#include <iostream>

#include "checkpoint/load/loader.h"
#include "checkpoint/record/attempt.h"
#include "checkpoint/save/retention.h"
#include "tests/crash/unsynced_file_system.h"
#include "tests/unit/checkpoint/counted_ranks.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::Cost;
using lockstep::test_support::Tally;
using lockstep::test_support::UnsyncedFileSystem;
using test_support::CountedRanks;
using test_support::kFolder;
using test_support::model;

EngineOptions options_of(int64_t generation, int64_t kept) {
  EngineOptions options = options_in(kFolder, generation);
  options.retention.keep_latest_k = kept;
  options.vote_deadline = std::chrono::minutes(4);
  return options;
}

// Milliseconds of the simulated clock, each at the rank where it is longest.
struct Waits {
  int64_t start = 0;        // of the engines
  int64_t find_newest = 0;  // at a resume; rank 0
  int64_t list = 0;         // `lockstep checkpoint list`
  int64_t load = 0;         // of a rank's part
  int64_t commit = 0;       // from begin_save until every rank knows that it is committed
  int64_t after_first = 0;  // what rank 0 still does after the first one of a generation
  int64_t after = 0;        // and after a later one; both remove one, the later one a small one
  int64_t remove = 0;       // of a checkpoint of all ranks
};

int64_t busiest(const CountedRanks& ranks) {
  int64_t most = 0;
  for (const Tally& tally : ranks.tallies) most = std::max(most, tally.calls());
  return most;
}

// Saves, and says when the last rank knows the outcome and when rank 0 has ended.
std::pair<int64_t, int64_t> save(CountedRanks& ranks, int64_t step) {
  ranks.reset();
  for (const SaveReport& report : ranks.world->save(step))
    EXPECT_TRUE(report.committed) << report.error;
  int64_t known = 0;
  for (const auto& line : ranks.lines) known = std::max(known, line->last_word_ms());
  return {known, ranks.lines[0]->now_ms() - known};
}

// `kept` checkpoints by `world_size` ranks, of which all but the oldest have a manifest alone.
void fill(UnsyncedFileSystem& disk, int world_size, int64_t kept) {
  CountedRanks ranks(disk, world_size, model(), options_of(1, 0));
  const auto oldest = ranks.world->save(1)[0].directory;
  Manifest manifest = read_manifest(disk, oldest).value();
  for (int64_t step = 2; step <= kept; ++step) {
    manifest.step = step;
    const auto directory = kFolder / attempt_name({step, 1, manifest.nonce, 1});
    ASSERT_TRUE(disk.make_directories(directory).ok());
    ASSERT_TRUE(publish_file(disk, directory / kManifestName, manifest_text(manifest)).ok());
  }
}

Waits measure(int world_size, int64_t kept) {
  UnsyncedFileSystem disk;
  Waits waits;
  fill(disk, world_size, kept);
  CountedRanks ranks(disk, world_size, model(), options_of(2, kept));
  EXPECT_EQ(ranks.world->error, "");
  waits.start = busiest(ranks);

  FileSystem& first = *ranks.seams[0];
  ranks.reset();
  EXPECT_EQ(list_from_newest(first, kFolder).value().size(), static_cast<size_t>(kept));
  waits.find_newest = busiest(ranks);
  ranks.reset();
  EXPECT_EQ(list_checkpoints(first, kFolder).value().size(), static_cast<size_t>(kept));
  waits.list = 1 + (busiest(ranks) - 1 + kManifestReaders - 1) / kManifestReaders;

  const auto [first_commit, first_after] = save(ranks, kept + 1);
  waits.after_first = first_after;
  const auto [commit, after] = save(ranks, kept + 2);
  waits.commit = std::max(first_commit, commit);
  waits.after = after;

  const auto newest = list_from_newest(disk, kFolder).value()[0].directory;
  ranks.reset();
  for (int rank = 0; rank < world_size; rank += 31) {
    FileSystem& own = *ranks.seams[static_cast<size_t>(rank)];
    RankState state = state_of(model(), rank, world_size);
    const Manifest manifest = read_manifest_for(own, newest, state.targets()).value();
    EXPECT_TRUE(load_pieces(own, newest, manifest, state.targets(), 1).ok());
    EXPECT_EQ(state.difference(kept + 2), "");
  }
  waits.load = busiest(ranks);

  ranks.reset();
  EXPECT_TRUE(remove_checkpoint(first, newest).ok());
  waits.remove = busiest(ranks);
  return waits;
}

void print(const Waits& few, const Waits& many) {
  const auto row = [&](const char* what, int64_t Waits::*of) {
    std::cout << "| " << what << " | " << few.*of << " ms | " << many.*of << " ms |\n";
  };
  row("start of the engines", &Waits::start);
  row("find the newest", &Waits::find_newest);
  row("list", &Waits::list);
  row("load", &Waits::load);
  row("commit", &Waits::commit);
  row("after the first commit", &Waits::after_first);
  row("after a later one", &Waits::after);
  row("remove one", &Waits::remove);
}

TEST(SlowStorage, NobodyWaitsLongerForMoreRanksButWhoRemovesTheirFiles) {
  constexpr int kFewRanks = 300, kManyRanks = 1024;  // both with manifests in parts
  constexpr int64_t kFewKept = 10, kManyKept = 100;
  const Waits few = measure(kFewRanks, kFewKept), many = measure(kManyRanks, kManyKept);
  print(few, many);
  EXPECT_LE(many.commit, 3000);
  EXPECT_LE(many.find_newest, 200);
  EXPECT_LE(many.list, 200);

  EXPECT_EQ(many.commit, few.commit);
  EXPECT_EQ(many.load, few.load);
  // A look at each one that is kept.
  EXPECT_EQ(many.find_newest - few.find_newest, kManyKept - kFewKept);
  EXPECT_EQ(many.start - few.start, kManyKept - kFewKept);
  // What is removed, a call a file, and little else.
  constexpr int64_t kLittle = 12;
  EXPECT_LE(few.remove, kFewRanks + kFewRanks / ranks_in_a_part(kFewRanks) + kLittle);
  EXPECT_LE(many.remove, kManyRanks + kManyRanks / ranks_in_a_part(kManyRanks) + kLittle);
  EXPECT_LE(few.after, kLittle);
  EXPECT_LE(many.after, kLittle);
}

}  // namespace
}  // namespace lockstep::checkpoint
