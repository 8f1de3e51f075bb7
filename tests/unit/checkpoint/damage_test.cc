// What is damaged is named, by load and by verify; the checkpoint before it is used instead.

#include "checkpoint/load/loader.h"
#include "checkpoint/save/retention.h"
#include "checkpoint/shard_file/chunk_table.h"
#include "checkpoint/tools/verify.h"
#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint {
namespace {

// Two ranks, steps 1 and 2 committed.
class Damage : public testing::Test {
 protected:
  void SetUp() override {
    World world(disk(), options_in(dir_ / "c"), odd_model(), 2);
    ASSERT_TRUE(world.save(1)[0].committed);
    newest_ = world.save(2)[0].directory;
    manifest_ = read_manifest(disk(), newest_).value();
  }
  void flip(const std::filesystem::path& path, int64_t offset) {
    const auto file = disk().open(path).value().release();
    std::byte byte[1];
    ASSERT_TRUE(file->read_at(byte, offset).ok());
    byte[0] ^= std::byte{1} << (offset % 8);
    ASSERT_TRUE(file->write_at(byte, offset).ok());
    delete file;
  }
  std::string load_error() {
    const auto manifest = read_manifest(disk(), newest_);
    if (!manifest.ok()) return manifest.error().message;
    RankState state = state_of(odd_model(), 0, 1);
    const auto loaded = load_pieces(disk(), newest_, manifest.value(), state.targets(), 1);
    return loaded.ok() ? "" : loaded.error().message;
  }
  std::string verify_error() {
    const auto problems = verify(disk(), newest_, 2);
    if (!problems.ok()) return problems.error().message;
    return problems.value().empty() ? "" : problems.value().front().what;
  }
  void expect_step_1_is_used() {
    RankState state = state_of(odd_model(), 0, 1);
    const auto loaded = newest_valid(disk(), dir_ / "c", state.targets(), 1);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded.value().manifest.step, 1);
    EXPECT_EQ(loaded.value().fallbacks, 1);
    EXPECT_EQ(state.difference(1), "");
  }

  TempDir dir_;
  std::filesystem::path newest_;
  Manifest manifest_;
};

TEST_F(Damage, AFlippedByteAnywhereInARankFileIsNamed) {
  const ManifestFile& entry = manifest_.files[1];
  const auto path = newest_ / entry.name;
  const auto shard = open_shard(disk(), newest_, manifest_, entry);
  ASSERT_TRUE(shard.ok());
  const auto table_bytes = entry.chunk_rows * static_cast<int64_t>(sizeof(ChunkRow));
  int64_t in_chunks = 0, in_table = 0, outside = 0;
  for (int64_t offset = 0; offset < entry.size_bytes; offset += offset < 1024 ? 7 : 211) {
    std::string expected = "outside the chunks";
    for (const ChunkRow& row : shard.value().rows)
      if (offset >= static_cast<int64_t>(row.file_offset) &&
          offset < static_cast<int64_t>(row.file_offset + row.stored_bytes))
        expected = chunk_text(entry, row);
    const int64_t in = offset - entry.chunk_table_offset;
    if (in >= 0 && in < table_bytes) expected = "/__chunks__";
    ++(expected == "/__chunks__" ? in_table : expected[0] == 'o' ? outside : in_chunks);
    flip(path, offset);
    EXPECT_THAT(load_error(), HasSubstr(expected)) << offset;
    EXPECT_THAT(load_error(), HasSubstr("rank_00001.h5")) << offset;
    EXPECT_THAT(verify_error(), HasSubstr(expected)) << offset;
    if (offset % 3 == 0) expect_step_1_is_used();
    flip(path, offset);
  }
  EXPECT_GT(in_chunks, 10);
  EXPECT_GE(in_table, 3);
  EXPECT_GT(outside, 100);
  EXPECT_EQ(load_error(), "");
  EXPECT_EQ(verify_error(), "");
}

TEST_F(Damage, AFlippedByteInTheManifestIsNamed) {
  const auto path = newest_ / kManifestName;
  const auto size = static_cast<int64_t>(read_file(disk(), path).value().size());
  for (int64_t offset = 0; offset < size; offset += 41) {
    flip(path, offset);
    EXPECT_THAT(load_error(), HasSubstr("manifest.json"));
    expect_step_1_is_used();
    flip(path, offset);
  }
  EXPECT_EQ(load_error(), "");
}

TEST_F(Damage, AFlippedBitInTheIndexIsNamedByVerifyAndHarmsNoLoad) {
  const auto path = newest_ / kIndexName;
  const auto size = static_cast<int64_t>(read_file(disk(), path).value().size());
  for (int64_t offset = 0; offset < size; offset += 501) {
    flip(path, offset);
    EXPECT_THAT(verify_error(), HasSubstr("index.h5")) << offset;
    EXPECT_EQ(load_error(), "");
    flip(path, offset);
  }
  EXPECT_EQ(verify_error(), "");
  ASSERT_TRUE(disk().remove(path).ok());  // a crash after the commit may leave none
  EXPECT_EQ(verify_error(), "");
  EXPECT_EQ(load_error(), "");
}

TEST_F(Damage, LatestIsAHintThatNobodyTrustsAndTheNextCommitWritesAnew) {
  const auto path = dir_ / "c" / kLatestName;
  const auto size = static_cast<int64_t>(read_file(disk(), path).value().size());
  const auto newest_step = [&] {
    RankState state = state_of(odd_model(), 0, 1);
    const auto loaded = newest_valid(disk(), dir_ / "c", state.targets(), 1);
    return loaded.ok() && loaded.value().fallbacks == 0 ? loaded.value().manifest.step : -1;
  };
  for (int64_t offset = 0; offset < size; ++offset) {
    flip(path, offset);
    EXPECT_EQ(newest_step(), 2) << offset;
  }
  World world(disk(), options_in(dir_ / "c", 2), odd_model(), 2);
  ASSERT_TRUE(world.save(3)[0].committed);
  EXPECT_EQ(read_file(disk(), path).value(), "step_00000003.g2-7f2a91\n");
  ASSERT_TRUE(disk().remove(path).ok());
  EXPECT_EQ(newest_step(), 3);
}

TEST_F(Damage, ATruncatedFileIsNamed) {
  for (int64_t left : {int64_t{0}, int64_t{100}, manifest_.files[0].size_bytes - 1}) {
    ASSERT_TRUE(disk().open(newest_ / "rank_00000.h5").value()->truncate(left).ok());
    EXPECT_THAT(load_error(), HasSubstr(text("rank_00000.h5 has ", left, " bytes, but ",
                                             manifest_.files[0].size_bytes, " were written")));
    EXPECT_THAT(verify_error(), HasSubstr("rank_00000.h5"));
    EXPECT_TRUE(list_checkpoints(disk(), dir_ / "c").value()[0].committed) << "no file is opened";
    expect_step_1_is_used();
  }
}

TEST_F(Damage, AMissingRankFileIsNamed) {
  ASSERT_TRUE(disk().remove(newest_ / "rank_00001.h5").ok());
  EXPECT_THAT(load_error(), HasSubstr("rank_00001.h5"));
  expect_step_1_is_used();
}

TEST_F(Damage, ACheckpointThatLostItsManifestIsNotTheRestOfAnAttempt) {
  ASSERT_TRUE(publish_file(disk(), newest_ / kIndexName, "a view").ok());
  ASSERT_TRUE(disk().remove(newest_ / kManifestName).ok());
  const auto entries = list_checkpoints(disk(), dir_ / "c").value();
  EXPECT_TRUE(entries[0].lost_manifest);
  EXPECT_THAT(entries[0].problem, HasSubstr("copy manifest.json from where"));
  EXPECT_TRUE(orphans(entries, entries[0].generation + 1).empty());
  expect_step_1_is_used();
}

TEST_F(Damage, AMissingManifestIsTheRestOfAnAttempt) {
  std::filesystem::remove(newest_ / kIndexName);
  ASSERT_TRUE(disk().remove(newest_ / kManifestName).ok());
  const auto entries = list_checkpoints(disk(), dir_ / "c").value();
  EXPECT_FALSE(entries[0].has_manifest);
  EXPECT_THAT(entries[0].problem, HasSubstr("no manifest.json"));
  RankState state = state_of(odd_model(), 0, 1);
  const auto loaded = newest_valid(disk(), dir_ / "c", state.targets(), 1);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded.value().manifest.step, 1);
  EXPECT_EQ(loaded.value().fallbacks, 0);
}

TEST_F(Damage, WhenNothingIsLeftEachProblemIsSaid) {
  const auto entries = list_checkpoints(disk(), dir_ / "c").value();
  for (const auto& entry : entries) flip(entry.directory / "rank_00000.h5", 9);
  RankState state = state_of(odd_model(), 0, 1);
  const auto loaded = newest_valid(disk(), dir_ / "c", state.targets(), 1);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kNotFound);
  EXPECT_THAT(loaded.error().message, HasSubstr("step_00000001.g1-7f2a91: "));
  EXPECT_THAT(loaded.error().message, HasSubstr("step_00000002.g1-7f2a91: "));
}

// As one of memory has, whose parts are not cut into chunks.
TEST_F(Damage, ChunksOfNoElementsAreRefused) {
  Manifest crafted = manifest_;
  crafted.chunking.elements = 0;
  ASSERT_TRUE(publish_file(disk(), newest_ / kManifestName, manifest_text(crafted)).ok());
  EXPECT_THAT(load_error(), HasSubstr("manifest.json: its chunks have no elements"));
  EXPECT_THAT(verify_error(), HasSubstr("manifest.json: its chunks have no elements"));
  expect_step_1_is_used();
}

TEST_F(Damage, AManifestUnderAnotherNameIsRefused) {
  const auto contents = read_file(disk(), newest_ / kManifestName).value();
  const auto other = dir_ / "c" / "step_00000009.g1-7f2a91";
  ASSERT_TRUE(disk().make_directories(other).ok());
  ASSERT_TRUE(publish_file(disk(), other / kManifestName, contents).ok());
  EXPECT_THAT(
      list_checkpoints(disk(), dir_ / "c").value()[0].problem,
      HasSubstr("the name of this checkpoint does not match its manifest, which is of step 2"));
}

// Every call to the file system fails once: the save fails on all ranks or is committed and whole;
// what was committed before stays; the next save works.
TEST(FailedCalls, EachOneLeavesThePreviousCheckpointAndTrainingGoesOn) {
  for (const Fault fault : {Fault::kNoSpace, Fault::kIoError, Fault::kShortWrite}) {
    int64_t calls = 1000, failures = 0;
    for (int64_t k = 1; k <= calls; k += fault == Fault::kNoSpace ? 1 : 5) {
      const TempDir dir;
      FaultyFileSystem faulty(disk());
      World world(faulty, options_in(dir / "c"), odd_model(), 2);
      ASSERT_TRUE(world.save(1)[0].committed);
      faulty.set_plan({.op = Op::kAny, .at_call = k, .fault = fault});
      const auto reports = world.save(2);
      calls = faulty.calls(Op::kAny);
      faulty.set_plan({});
      ASSERT_EQ(reports.size(), 2u);
      EXPECT_EQ(reports[0].committed, reports[1].committed) << k;
      if (!reports[0].committed) {
        ++failures;
        EXPECT_THAT(reports[1].error, HasSubstr("injected")) << k;
      }
      const int64_t step = reports[0].committed ? 2 : 1;
      RankState state = state_of(odd_model(), 0, 1);
      const auto loaded = newest_valid(disk(), dir / "c", state.targets(), 1);
      ASSERT_TRUE(loaded.ok()) << k << ": " << loaded.error().message;
      EXPECT_EQ(loaded.value().manifest.step, step) << k;
      EXPECT_EQ(state.difference(step), "") << k;
      const auto next = world.save(3);
      EXPECT_TRUE(next[0].committed && next[1].committed) << k << ": " << next[0].error;
    }
    EXPECT_GT(calls, 30);
    EXPECT_GT(failures, 4);
  }
}

// A disk that refuses a read for a moment has damaged nothing: who resumes tries again.
TEST_F(Damage, ARefusedReadIsNotDamage) {
  FaultyFileSystem faulty(disk());
  int64_t calls = 100, refused = 0;
  for (int64_t k = 2; k <= calls; ++k) {  // the first one lists the folder
    faulty.set_plan({.op = Op::kAny, .at_call = k, .fault = Fault::kIoError});
    const auto entries = list_checkpoints(faulty, dir_ / "c");
    calls = faulty.calls(Op::kAny);
    faulty.set_plan({});
    ASSERT_TRUE(entries.ok()) << entries.error().message;
    for (const CatalogEntry& entry : entries.value()) {
      EXPECT_TRUE(entry.has_manifest) << k;
      EXPECT_EQ(entry.unread, !entry.committed) << k << ": " << entry.problem;
      refused += entry.unread;
    }
  }
  EXPECT_EQ(refused, calls - 1) << "each call of one entry";
  std::filesystem::resize_file(newest_ / kManifestName, 7);
  const auto damaged = list_checkpoints(disk(), dir_ / "c").value()[0];
  EXPECT_FALSE(damaged.committed);
  EXPECT_FALSE(damaged.unread);
}

TEST(FailedCalls, AFullDiskIsSaidAsSuch) {
  const TempDir dir;
  FaultyFileSystem small(disk());
  World world(small, options_in(dir / "c"), odd_model(), 2);
  ASSERT_TRUE(world.save(1)[0].committed);
  small.set_plan({.byte_limit = 30000});
  const auto reports = world.save(2);
  EXPECT_FALSE(reports[0].committed);
  EXPECT_THAT(reports[0].error, HasSubstr("No space left on device"));
  EXPECT_FALSE(disk().exists(reports[0].directory / "rank_00000.h5"));
  small.set_plan({});
  EXPECT_TRUE(world.save(2)[0].committed);
}

}  // namespace
}  // namespace lockstep::checkpoint
