// A fault at every call that a start, a save and a prune make: afterwards step N or the one before
// loads, bit for bit; what was reported as committed is there; the next generation starts.
#include "tests/crash/crash_matrix.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/save/retention.h"

namespace lockstep::checkpoint::crash {
namespace {

class EveryCall : public testing::TestWithParam<Scenario> {};
INSTANTIATE_TEST_SUITE_P(CrashMatrix, EveryCall, testing::ValuesIn(kScenarios),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(EveryCall, OfAStartASaveAndWhatItPrunes) { save_matrix(GetParam(), odd_model(), 1); }

// One of four ranks writes the state of all.
TEST_P(EveryCall, ForAFileOfSeveralRanks) {
  save_matrix(
      GetParam(), odd_model(), 1,
      {.ranks = 4, .ranks_per_file = 4, .calls_of = "rank_", .least_before = 5, .least_after = 0});
}

// Ten ranks in two groups, whose first ones publish a part each before rank 0 publishes the whole.
TEST_P(EveryCall, ForAManifestInParts) {
  int64_t parts_alone = 0;  // both are durable, and nothing names them
  Saving saving{
      .ranks = 10, .in_parts = true, .calls_of = "manifest", .least_before = 15, .least_after = 4};
  saving.look = [&](UnsyncedFileSystem& disk) {
    const Path attempt = kFolder / attempt_name({kNext, 2, "7f2a91", 1});
    const auto has = [&](const char* name) { return disk.exists(attempt / name); };
    parts_alone += has("manifest_00000.json") && has("manifest_00008.json") && !has(kManifestName);
  };
  save_matrix(GetParam(), odd_model(), 1, saving);
  EXPECT_EQ(parts_alone > 0, GetParam().after != After::kGoOn) << "a failed save is removed";
}

// Five checkpoints of which a prune keeps two, and one of a later generation.
std::unique_ptr<UnsyncedFileSystem> disk_to_prune() {
  auto disk = std::make_unique<UnsyncedFileSystem>();
  EngineOptions options = options_of(1);
  options.retention.keep_latest_k = 0;
  World world(*disk, options, odd_model(), 2);
  for (int64_t step = 1; step <= 5; ++step) EXPECT_TRUE(world.save(step)[0].committed);
  disk->lose_power();
  return disk;
}

TEST_P(EveryCall, OfAPrune) {
  const auto start = disk_to_prune();
  const RetentionPolicy policy{.keep_latest_k = 2};
  bool met = true;
  int64_t k = 1;
  for (; met; ++k) {
    ASSERT_LT(k, 500);
    SCOPED_TRACE(text(GetParam().name, " at call ", k));
    const auto disk = start->copy();
    FaultyFileSystem faulty(*disk, {.op = Op::kAny,
                                    .at_call = k,
                                    .fault = GetParam().fault,
                                    .and_after = GetParam().after != After::kGoOn});
    Catalog catalog(faulty, kFolder);
    const auto first = prune(faulty, catalog, policy, 1);
    met = faulty.calls(Op::kAny) >= k;
    EXPECT_TRUE(met || first.value().size() == 3u);
    settle(*disk, GetParam().after, k);
    EXPECT_EQ(recovered_step(*disk, odd_model(), static_cast<int>(k % 3) + 1), 5);
    const auto entries = list_checkpoints(*disk, kFolder).value();
    for (const auto& entry : entries) {
      EXPECT_TRUE(entry.committed || entry.step < 4) << entry.problem;
      EXPECT_TRUE(entry.committed || !entry.has_manifest) << "half of one: " << entry.problem;
      if (!entry.committed) continue;  // what is still there, is whole
      RankState state = state_of(odd_model(), 0, 1);
      const Manifest manifest = read_manifest(*disk, entry.directory).value();
      EXPECT_TRUE(load_pieces(*disk, entry.directory, manifest, state.targets(), 1).ok());
      EXPECT_EQ(state.difference(entry.step), "");
    }
    Catalog later(*disk, kFolder);
    EXPECT_TRUE(prune(*disk, later, policy, 1).ok());  // the next one finishes it
    EXPECT_EQ(list_checkpoints(*disk, kFolder).value().size(), 2u);
  }
  EXPECT_GT(k, 20);
}

TEST(CrashMatrix, PiecesOfSeveralChunksAtSomeCalls) {
  for (const Scenario& scenario : kScenarios)
    if (scenario.after == After::kPowerLossBySeed) save_matrix(scenario, large_model(), 13);
}

// Without the fsyncs that this test takes away, the matrix must fail: it can see what it looks for.
TEST(CrashMatrix, ADiskThatIgnoresSyncLosesWhatWasCommitted) {
  class Careless final : public FileSystem {  // passes everything on but the directory's sync
   public:
    explicit Careless(FileSystem& behind) : behind_(behind) {}
    Result<std::unique_ptr<File>> create(const Path& p) override { return behind_.create(p); }
    Result<std::unique_ptr<File>> open(const Path& p) override { return behind_.open(p); }
    Result<void> make_directories(const Path& p) override { return behind_.make_directories(p); }
    Result<void> rename(const Path& a, const Path& b) override { return behind_.rename(a, b); }
    Result<void> remove(const Path& p) override { return behind_.remove(p); }
    Result<std::vector<std::string>> list(const Path& p) override { return behind_.list(p); }
    Result<void> sync_directory(const Path&) override { return {}; }
    bool exists(const Path& p) override { return behind_.exists(p); }
    bool is_link(const Path& p) override { return behind_.is_link(p); }
    Result<int64_t> free_bytes(const Path& p) override { return behind_.free_bytes(p); }

   private:
    FileSystem& behind_;
  };
  const auto disk = start_disk(odd_model());
  Careless careless(*disk);
  {
    World world(careless, options_of(2), odd_model(), 2);
    EXPECT_TRUE(world.save(kNext)[0].committed);
  }
  disk->lose_power();
  EXPECT_EQ(recovered_step(*disk, odd_model(), 1), kPrevious);
}

}  // namespace
}  // namespace lockstep::checkpoint::crash
