// What the code of checkpoints must never do ends the process, in release builds too. Each case
// breaks one rule by a call that no caller makes.
#include <thread>

#include "checkpoint/record/attempt.h"
#include "checkpoint/save/fence.h"
#include "checkpoint/save/stoppable_files.h"
#include "checkpoint/shard_file/shard_file_writer.h"
#include "checkpoint/snapshot/memory_tier.h"
#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Path = std::filesystem::path;

// A save's files over the disk.
struct Files {
  std::atomic<bool> stopped = false;
  std::atomic<int64_t> calls = 0;
  StoppableFiles files{disk(), stopped, OnceStopped::kFail, calls};
};

TEST(StoppableFiles, WhatIsWrittenIsUnsyncedUntilFileAndFolderAreSynced) {
  const TempDir dir;
  Files f;
  const Path folder = dir / "attempt", path = folder / "rank_00000.h5";
  ASSERT_TRUE(f.files.make_directories(folder).ok());
  EXPECT_THAT(f.files.unsynced(), ElementsAre(folder.parent_path()));
  ASSERT_TRUE(f.files.sync_directory(folder.parent_path() / "").ok()) << "written another way";
  EXPECT_THAT(f.files.unsynced(), IsEmpty());
  const auto file = f.files.create(path);
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(f.files.unsynced(), ElementsAre(folder, path));
  ASSERT_TRUE(file.value()->sync().ok());
  EXPECT_THAT(f.files.unsynced(), ElementsAre(folder));
  ASSERT_TRUE(f.files.sync_directory(folder).ok());
  EXPECT_THAT(f.files.unsynced(), IsEmpty());
  ASSERT_TRUE(file.value()->write_at(as_bytes("more"), 0).ok());
  EXPECT_THAT(f.files.unsynced(), ElementsAre(path));
}

TEST(StoppableFiles, ARenameTakesWhatIsUnsyncedAlong) {
  const TempDir dir;
  Files f;
  const Path from = dir / "a.tmp", to = dir / "a";
  const auto file = f.files.create(from);
  ASSERT_TRUE(file.ok() && f.files.sync_directory(from.parent_path()).ok());
  ASSERT_TRUE(f.files.rename(from, to).ok());
  EXPECT_THAT(f.files.unsynced(), ElementsAre(to.parent_path(), to));
  ASSERT_TRUE(f.files.remove(to).ok() && f.files.sync_directory(from.parent_path()).ok());
  EXPECT_THAT(f.files.unsynced(), IsEmpty());
}

TEST(StoppableFiles, AFileWhoseSyncFailedStaysUnsynced) {
  const TempDir dir;
  FaultyFileSystem faulty(disk());
  std::atomic<bool> stopped = false;
  std::atomic<int64_t> calls = 0;
  StoppableFiles files(faulty, stopped, OnceStopped::kFail, calls);
  const auto file = files.create(dir / "a");
  faulty.set_plan({.op = Op::kSync, .at_call = 1, .fault = Fault::kIoError});
  ASSERT_FALSE(file.value()->sync().ok());
  EXPECT_TRUE(files.unsynced().contains(dir / "a"));
}

// A piece of 8 elements of a tensor of 16.
TensorPiece piece_at(int64_t first) { return {"w", Kind::kParam, {4, 4}, first, 8, Dtype::kF32}; }
const std::vector<std::byte> kBytes(32);

TEST(ShardFileWriterInvariants, PiecesThatOverlapEndTheProcess) {
  const TempDir dir;
  const auto append_both = [&](int64_t first, int64_t second) {
    ChunkPipeline pipeline(Codec::kNone, 1, 0);
    auto writer = ShardFileWriter::open(disk(), pipeline, {.directory = dir.path()});
    (void)writer.value().append(piece_at(first), kBytes).ok();
    (void)writer.value().append(piece_at(second), kBytes).ok();
  };
  append_both(0, 8);
  append_both(8, 0);
  EXPECT_DEATH(append_both(0, 0), "overlap a piece before");
  EXPECT_DEATH(append_both(0, 4), "overlap a piece before");
  EXPECT_DEATH(append_both(4, 0), "overlap a piece before");
}

TEST(ShardFileWriterInvariants, APieceAfterTheSealEndsTheProcess) {
  const TempDir dir;
  const auto append_late = [&] {
    ChunkPipeline pipeline(Codec::kNone, 1, 0);
    auto writer = ShardFileWriter::open(disk(), pipeline, {.directory = dir.path()});
    (void)writer.value().append(piece_at(0), kBytes).ok();
    (void)writer.value().seal().ok();
    (void)writer.value().append(piece_at(8), kBytes).ok();
  };
  EXPECT_DEATH(append_late(), "comes after the file was sealed");
}

// What a neighbour says is bad input to whoever writes the file, and ends no process.
TEST(ShardFileWriterInvariants, ANeighbourThatEndsBeforeItsLastChunkFailsTheFile) {
  const TempDir dir;
  const std::atomic<bool> gave_up = false;
  const Patience patience{std::chrono::hours(10), &gave_up};
  const SharedRegion region = SharedRegion::create(1).value();
  const SharedRegion page = SharedRegion::open(region.address()).value();
  ChunkOutbox outbox = ChunkOutbox::create(0, page, patience).value();
  ChunkInbox inbox = ChunkInbox::open(3, outbox.address(), patience).value();
  const TensorPiece two{"w", Kind::kParam, {2, kChunkElements}, 0, 2 * kChunkElements, Dtype::kF32};
  const std::vector<std::byte> bytes(static_cast<size_t>(two.size_bytes()));
  std::thread neighbour([&] {
    ChunkPipeline theirs(Codec::kNone, 1, 0);
    PieceEncoder encoder(theirs, {kChunkElements}, [&](const FileChunk& chunk) {
      return chunk.index == 0 ? outbox.put(chunk) : Result<void>();
    });
    EXPECT_TRUE(encoder.append(two, bytes).ok());
    EXPECT_TRUE(encoder.flush().ok());
    EXPECT_TRUE(outbox.finish().ok());
  });
  ChunkPipeline pipeline(Codec::kNone, 1, 0);
  auto writer = ShardFileWriter::open(
      disk(), pipeline, {.directory = dir.path(), .neighbours = std::span(&inbox, 1)});
  ASSERT_TRUE(writer.ok());
  const auto sealed = writer.value().seal();
  neighbour.join();
  ASSERT_FALSE(sealed.ok());
  EXPECT_EQ(sealed.error().code, Code::kCorrupt);
  EXPECT_THAT(sealed.error().message, HasSubstr("handed over 1 of its 2 chunks"));
}

TEST(CatalogInvariants, ACheckpointAtAnotherPlaceThanItsOwnEndsTheProcess) {
  const TempDir dir;
  Manifest manifest;
  manifest.step = 7;
  manifest.generation = 2;
  Catalog catalog(disk(), dir.path());
  catalog.add(dir / attempt_name({7, 2, "abc", 1}), manifest);
  EXPECT_DEATH(catalog.add(dir / attempt_name({8, 2, "abc", 1}), manifest), "is not the place of");
  EXPECT_DEATH(catalog.add(Path("/elsewhere") / attempt_name({7, 2, "abc", 1}), manifest),
               "is not the place of");
}

TEST(RetentionInvariants, WhatIsNotNamedAsACheckpointIsNotRemoved) {
  const TempDir dir;
  EXPECT_DEATH((void)remove_checkpoint(disk(), dir / "data").ok(), "is not named as a checkpoint");
}

TEST(AttemptInvariants, ANameThatIsReadAsAnotherAttemptEndsTheProcess) {
  EXPECT_DEATH(attempt_name({7, 2, "ab-3", 1}), "is read as another attempt");
  EXPECT_DEATH(attempt_name({-1, 2, "ab", 1}), "step -1");
}

TEST(FenceInvariants, AGenerationWithoutANonceIsNobody) {
  const TempDir dir;
  EXPECT_DEATH((void)Fence({dir.path(), 3, ""}).take(disk()).ok(), "generation 3 with the nonce");
}

TEST(MemoryTierInvariants, TheSnapshotThatAllHaveIsNotWrittenOver) {
  const TempDir dir;
  RankState state = state_of(odd_model(), 0, 1);
  MemoryTierOptions options;
  options.folder = dir / "memory";
  options.tag.nonce = "abc";
  const auto take_two = [&](int64_t keep) {
    HostState live(state.live());
    auto tier = MemoryTier::create(options, disk(), live);
    tier.value()->begin(4, -1, -1, "{}");
    tier.value()->drain();
    tier.value()->begin(5, keep, -1, "{}");
    tier.value()->drain();
  };
  take_two(4);
  EXPECT_DEATH(take_two(3), "would be written over step 3");
}

}  // namespace
}  // namespace lockstep::checkpoint
