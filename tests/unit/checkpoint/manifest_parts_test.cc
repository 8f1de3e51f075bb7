#include "checkpoint/record/manifest_parts.h"

#include "base/hash.h"
#include "checkpoint/ballot/verdict.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/tools/diff.h"
#include "checkpoint/tools/reshard.h"
#include "checkpoint/tools/verify.h"
#include "tests/support/ranks_at_once.h"
#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::ranks_at_once;
using testing::ElementsAre;
using Path = std::filesystem::path;

constexpr int kRanks = 20;  // in groups of 8, 8 and 4

EngineOptions in_parts(const Path& folder, int64_t generation = 1) {
  EngineOptions options = options_in(folder, generation);
  options.most_ranks_in_one_manifest = kRanks - 1;
  return options;
}

std::vector<std::string> names_of(const Path& directory, const std::string& prefix) {
  std::vector<std::string> names = disk().list(directory).value();
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(prefix); });
  return names;
}

// Steps 1 and 2 committed.
class InParts : public testing::Test {
 protected:
  void SetUp() override {
    World world(disk(), in_parts(dir_ / "c"), odd_model(), kRanks);
    ASSERT_TRUE(world.save(1)[0].committed);
    newest_ = world.save(2)[0].directory;
  }
  // "" or what a rank of `ranks` meets as it loads its part.
  std::string load_error(int rank, int ranks) {
    RankState state = state_of(odd_model(), rank, ranks);
    const auto manifest = read_manifest_for(disk(), newest_, state.targets());
    if (!manifest.ok()) return manifest.error().message;
    const auto loaded = load_pieces(disk(), newest_, manifest.value(), state.targets(), 1);
    return loaded.ok() ? state.difference(2) : loaded.error().message;
  }
  void expect_step_1_is_used() {
    RankState state = state_of(odd_model(), 0, 1);
    const auto loaded = newest_valid(disk(), dir_ / "c", state.targets(), 1);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded.value().manifest.step, 1);
    EXPECT_EQ(loaded.value().fallbacks, 1);
  }

  const TempDir dir_;
  Path newest_;
};

TEST(RanksInAPart, GrowAsTheSquareRootInWholeNodes) {
  for (const auto& [world_size, ranks] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 8}, {64, 8}, {65, 16}, {256, 16}, {1024, 32}, {2048, 48}, {16384, 128}})
    EXPECT_EQ(ranks_in_a_part(world_size), ranks) << world_size;
}

TEST_F(InParts, APartForEachGroupAndManifestJsonNamesThem) {
  EXPECT_THAT(names_of(newest_, "manifest"),
              ElementsAre("manifest.json", "manifest_00000.json", "manifest_00008.json",
                          "manifest_00016.json"));
  EXPECT_THAT(names_of(newest_, "index"), ElementsAre());
  const Manifest whole = read_manifest(disk(), newest_).value();
  EXPECT_EQ(whole.format_version, 3);
  ASSERT_EQ(whole.files.size(), size_t{kRanks});
  for (size_t i = 0; i < whole.files.size(); ++i)
    EXPECT_EQ(whole.files[i].name, text("rank_", zero_padded(static_cast<int64_t>(i), 5), ".h5"));
  const std::string contents = read_file(disk(), newest_ / kManifestName).value();
  EXPECT_EQ(manifest_text(whole), contents);
  EXPECT_THAT(contents, testing::Not(HasSubstr("rank_00000.h5")));
  int64_t stored_bytes = 0;
  for (const ManifestFile& file : whole.files) stored_bytes += file.size_bytes;
  const CatalogEntry entry = list_checkpoints(disk(), dir_ / "c").value()[0];
  EXPECT_TRUE(entry.usable());
  EXPECT_EQ(entry.size_bytes, stored_bytes);
}

TEST_F(InParts, LoadsAtAnyWorldSize) {
  for (const int ranks : {1, 3, 8, kRanks, 27})
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(load_error(rank, ranks), "") << rank << " of " << ranks;
}

TEST_F(InParts, ARankReadsThePartsThatItNeeds) {
  FaultyFileSystem counted(disk());
  for (int rank = 0; rank < kRanks; ++rank) {
    counted.set_plan({});
    RankState state = state_of(odd_model(), rank, kRanks);
    const auto manifest = read_manifest_for(counted, newest_, state.targets());
    ASSERT_TRUE(manifest.ok()) << manifest.error().message;
    EXPECT_EQ(counted.calls(Op::kOpen), 2) << "manifest.json, and the part of its group";
    EXPECT_EQ(manifest.value().files.size(), rank < 16 ? 8u : 4u);
  }
  counted.set_plan({});
  EXPECT_TRUE(list_checkpoints(counted, dir_ / "c").value()[0].committed);
  EXPECT_EQ(counted.calls(Op::kOpen), 2) << "manifest.json of each checkpoint";
}

TEST_F(InParts, ADamagedPartIsNamedByWhoReadsIt) {
  const Path path = newest_ / "manifest_00008.json";
  const std::string contents = read_file(disk(), path).value();
  for (size_t at = 0; at < contents.size(); at += 97) {
    std::string damaged = contents;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    ASSERT_TRUE(publish_file(disk(), path, damaged).ok());
    EXPECT_THAT(load_error(12, kRanks), HasSubstr("manifest_00008.json differs"));
    EXPECT_EQ(load_error(3, kRanks), "");
    EXPECT_THAT(verify(disk(), newest_, 1).error().message, HasSubstr("manifest_00008.json"));
  }
  expect_step_1_is_used();
  EXPECT_TRUE(list_checkpoints(disk(), dir_ / "c").value()[0].committed) << "no part is opened";
  ASSERT_TRUE(publish_file(disk(), path, contents.substr(0, contents.size() / 2)).ok());
  EXPECT_THAT(load_error(12, kRanks), HasSubstr("manifest_00008.json differs"));
  const Path earlier = dir_ / "c" / "step_00000001.g1-7f2a91" / "manifest_00008.json";
  ASSERT_TRUE(publish_file(disk(), path, read_file(disk(), earlier).value()).ok());
  EXPECT_THAT(load_error(12, kRanks), HasSubstr("manifest_00008.json differs"));
  ASSERT_TRUE(disk().remove(path).ok());
  EXPECT_THAT(load_error(12, kRanks), HasSubstr("manifest_00008.json is missing"));
  EXPECT_EQ(verify(disk(), newest_, 1).error().code, Code::kCorrupt) << "damage, as it is shown";
  expect_step_1_is_used();
}

// With a digest that fits: the pieces that manifest.json gives it were checked, and no others.
TEST_F(InParts, APartThatDescribesOtherFilesIsRefused) {
  Manifest crafted = read_manifest(disk(), newest_).value();
  std::vector<ManifestFile> files(crafted.files.begin() + 8, crafted.files.begin() + 16);
  const auto refused = [&](size_t count) {
    Manifest m = crafted;
    ManifestPart other = publish_part(disk(), newest_, 8, std::span(files).first(count)).value();
    other.pieces = m.parts[1].pieces;
    m.parts[1] = other;
    EXPECT_TRUE(publish_file(disk(), newest_ / kManifestName, manifest_text(m)).ok());
    return load_error(12, kRanks);
  };
  EXPECT_EQ(refused(8), "");
  EXPECT_THAT(refused(7), HasSubstr("manifest_00008.json describes other files"));
  files[2].pieces.push_back(files[2].pieces[0]);
  EXPECT_THAT(refused(8), HasSubstr("manifest_00008.json describes other files"));
  files[2].pieces.back().length = 0;
  EXPECT_THAT(refused(8), HasSubstr("a piece without elements"));
  files[2].pieces.pop_back();
  files[3].name = "/etc/passwd";
  EXPECT_THAT(refused(8), HasSubstr("is not a plain file name in the same folder"));
}

// Each rank verifies its share of what all wrote; what they settle on.
std::vector<std::string> settled_on(const Path& directory, int ranks) {
  MemoryBallot ballot;
  return ranks_at_once(ranks, [&](int rank) -> std::string {
    FaultyFileSystem counted(disk());
    const auto mine = verify_share(counted, directory, {rank, ranks}, 1);
    EXPECT_LE(counted.calls(Op::kOpen), 3) << "manifest.json, a part of it or the index, a file";
    using Sums = Result<Fingerprints>;
    const auto settled = settle(
        ballot, "p", rank, ranks,
        Verdict::of(rank, mine.ok() ? Sums(mine.value().sums) : Sums(mine.error())),
        [&](const Fingerprints& all) { return check_fingerprints(mine.value().manifest, all); },
        std::chrono::minutes(1));
    if (!settled.ok()) return "not settled: " + settled.error().message;
    return settled.value() ? settled.value()->message : "";
  });
}

TEST_F(InParts, RanksVerifyItTogetherAndEachHearsWhatIsDamaged) {
  const auto all_say = [&](const Path& directory, int ranks, const std::string& words) {
    for (const std::string& said : settled_on(directory, ranks))
      EXPECT_TRUE(words.empty() ? said.empty() : said.starts_with(words)) << said;
  };
  all_say(newest_, kRanks, "");
  World world(disk(), options_in(dir_ / "whole"), odd_model(), 3);
  const Path in_one = world.save(1)[0].directory;
  all_say(in_one, 3, "");
  const auto damage = [](const Path& path) {
    std::string contents = read_file(disk(), path).value();
    contents[contents.size() / 2] ^= 4;
    ASSERT_TRUE(publish_file(disk(), path, contents).ok());
  };
  damage(newest_ / "rank_00013.h5");
  all_say(newest_, kRanks, "rank 13: rank_00013.h5: ");
  damage(newest_ / "manifest_00008.json");
  all_say(newest_, kRanks, text("rank 8: ", (newest_ / "manifest_00008.json").string()));
  damage(in_one / kIndexName);
  all_say(in_one, 3, "rank 0: index.h5: ");
  damage(in_one / "rank_00002.h5");
  ASSERT_TRUE(disk().remove(in_one / kIndexName).ok());
  all_say(in_one, 3, "rank 2: rank_00002.h5: ");
}

// Sums that do not fit although each file does: one of another step, entered as it is.
TEST_F(InParts, SharesThatAreWholeMustAlsoFitTogether) {
  Manifest crafted = read_manifest(disk(), newest_).value();
  crafted.tensors[0].fingerprint.begin()->second = "0123456789abcdef";
  ASSERT_TRUE(publish_file(disk(), newest_ / kManifestName, manifest_text(crafted)).ok());
  for (const std::string& said : settled_on(newest_, kRanks))
    EXPECT_THAT(said, HasSubstr(crafted.tensors[0].name));
}

TEST_F(InParts, FewerReadersThanFilesReadThemAllOnce) {
  std::vector<std::string> names;
  for (int rank = 0; rank < 7; ++rank)
    for (const ManifestFile& file :
         verify_share(disk(), newest_, {rank, 7}, 1).value().manifest.files)
      names.push_back(file.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, names_of(newest_, "rank_"));
}

TEST_F(InParts, ToolsReadItAndWriteItForManyRanks) {
  const auto same = [&](const Path& other, int64_t format_version) {
    const auto problems = verify(disk(), other, 2);
    EXPECT_TRUE(problems.ok() && problems.value().empty());
    EXPECT_TRUE(diff_checkpoints(disk(), newest_, other, 2, test_support::kSilent).value().equal());
    EXPECT_EQ(read_manifest(disk(), other).value().format_version, format_version);
  };
  same(newest_, 3);
  const auto resharded = [&](int64_t ranks) {
    return reshard(disk(), {newest_, dir_ / text("of_", ranks), ranks, {}, 2, "abc123"},
                   test_support::kSilent)
        .value();
  };
  same(resharded(3), 1);
  same(resharded(kMostRanksInOneManifest), 1);
  const Path many = resharded(kMostRanksInOneManifest + 1);
  same(many, 3);
  EXPECT_FALSE(names_of(many, "manifest_").empty());
  EXPECT_THAT(names_of(many, "index"), ElementsAre());
}

TEST_F(InParts, APruneRemovesThemToo) {
  EngineOptions options = in_parts(dir_ / "c", 2);
  options.retention.keep_latest_k = 2;
  World world(disk(), options, odd_model(), kRanks);
  ASSERT_TRUE(world.save(3)[0].committed);
  EXPECT_THAT(names_of(dir_ / "c", "step_"),
              ElementsAre("step_00000002.g1-7f2a91", "step_00000003.g2-7f2a91"));
}

TEST(Parts, NarrowTensorsToo) {
  const TempDir dir;
  const World::Disks seams(kRanks, &disk());
  World world(seams, in_parts(dir / "c"), odd_model(), {}, Dtype::kBf16);
  const Path directory = world.save(5)[0].directory;
  RankState state = state_of(odd_model(), 1, 3, Dtype::kBf16);
  const auto manifest = read_manifest_for(disk(), directory, state.targets());
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  EXPECT_EQ(manifest.value().format_version, 3);
  EXPECT_TRUE(load_pieces(disk(), directory, manifest.value(), state.targets(), 1).ok());
  EXPECT_EQ(state.difference(5), "");
}

// The first of a group has a disk that fails, or another rank of it has.
TEST(Parts, AGroupThatFailsIsNamedAndTheSaveLeavesNothing) {
  for (const size_t failing : {8u, 9u})
    for (const Fault fault : {Fault::kIoError, Fault::kNoSpace}) {
      const TempDir dir;
      std::vector<std::unique_ptr<FaultyFileSystem>> disks;
      World::Disks seams;
      for (int rank = 0; rank < kRanks; ++rank)
        seams.push_back(disks.emplace_back(std::make_unique<FaultyFileSystem>(disk())).get());
      World world(seams, in_parts(dir / "c"), odd_model());
      ASSERT_TRUE(world.save(1)[0].committed);
      // Of the first one the call that makes its part durable, of the other that of its file.
      disks[failing]->set_plan({.op = Op::kSync, .at_call = failing == 8 ? 2 : 1, .fault = fault});
      for (const SaveReport& report : world.save(2)) {
        EXPECT_FALSE(report.committed);
        EXPECT_EQ(report.code, fault == Fault::kNoSpace ? Code::kNoSpace : Code::kIo);
        EXPECT_THAT(report.error, HasSubstr("injected"));
        EXPECT_THAT(report.error, HasSubstr(failing == 8 ? "manifest_00008.json" : "rank_00009"));
      }
      EXPECT_THAT(names_of(dir / "c", "step_"), ElementsAre("step_00000001.g1-7f2a91"));
      EXPECT_TRUE(world.save(3)[0].committed);
      RankState state = state_of(odd_model(), 0, 1);
      EXPECT_TRUE(newest_valid(disk(), dir / "c", state.targets(), 1).ok());
      EXPECT_EQ(state.difference(3), "");
    }
}

}  // namespace
}  // namespace lockstep::checkpoint
