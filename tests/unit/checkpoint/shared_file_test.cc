// Ranks of a node that share a file: chunks through shared memory, who writes, and what becomes of
// a save when one of them cannot go on.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/clock.h"
#include "checkpoint/save/file_group.h"
#include "checkpoint/shard_file/shard_file_writer.h"
#include "checkpoint/tools/verify.h"
#include "tests/support/eventually.h"
#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::eventually;
using testing::ElementsAre;

using Runs = std::vector<std::pair<int, int>>;  // writer, ranks

Runs groups_of(const std::vector<int>& nodes, int ranks_per_file) {
  Runs runs;
  const int world_size = static_cast<int>(nodes.size());
  for (int rank = 0; rank < world_size; ++rank) {
    const FileGroup group = file_group(rank, world_size, nodes, ranks_per_file);
    const std::pair<int, int> run{group.writer, group.ranks};
    EXPECT_TRUE(group.writer <= rank && rank < group.writer + group.ranks);
    if (group.writer == rank) runs.push_back(run);
    EXPECT_EQ(runs.back(), run) << "rank " << rank << " says otherwise than rank " << group.writer;
  }
  return runs;
}

TEST(FileGroup, IsOfRanksThatFollowEachOtherOnOneNode) {
  const std::vector<int> uneven = {0, 0, 0, 0, 0, 1, 1, 1};
  EXPECT_EQ(groups_of(uneven, 2), (Runs{{0, 2}, {2, 2}, {4, 1}, {5, 2}, {7, 1}}));
  EXPECT_EQ(groups_of(uneven, 4), (Runs{{0, 4}, {4, 1}, {5, 3}}));
  EXPECT_EQ(groups_of(uneven, 64), (Runs{{0, 5}, {5, 3}}));
  EXPECT_EQ(groups_of({0, 0, 0}, 1), (Runs{{0, 1}, {1, 1}, {2, 1}}));
  EXPECT_EQ(groups_of({0, 1, 0, 1}, 4), (Runs{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
  EXPECT_EQ(file_group(5, 7, {}, 4).ranks, 3) << "all are on one node";
}

constexpr std::chrono::hours kHours{10};
const std::atomic<bool> kGoesOn{false};
constexpr Patience kForEver{kHours, &kGoesOn};
constexpr Patience kAMinute{std::chrono::minutes(1), &kGoesOn};
const TensorPiece kPiece{"w", Kind::kAdamV, {3, 40}, 7, 90, Dtype::kBf16};

// Chunk `index` of kPiece, and the bytes that it borrows.
struct MadeUpChunk {
  explicit MadeUpChunk(int64_t number) : index(number), bytes(static_cast<size_t>(100 + number)) {
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(mix64(static_cast<uint64_t>(number) << 20 | i));
  }
  FileChunk chunk() const {
    return {&kPiece, index, {bytes, 180, 3, crc32c(bytes), static_cast<uint64_t>(index) << 40}};
  }
  int64_t index;
  std::vector<std::byte> bytes;
};

void expect_chunk(const FileChunk& got, int64_t index) {
  const MadeUpChunk made(index);
  const FileChunk want = made.chunk();
  EXPECT_EQ(*got.piece, kPiece);
  EXPECT_EQ(got.index, index);
  EXPECT_TRUE(std::ranges::equal(got.bytes.bytes, want.bytes.bytes)) << index;
  EXPECT_EQ(got.bytes.raw_bytes, want.bytes.raw_bytes);
  EXPECT_EQ(got.bytes.filter_mask, want.bytes.filter_mask);
  EXPECT_EQ(got.bytes.crc32c, want.bytes.crc32c);
  EXPECT_EQ(got.bytes.xxh3, want.bytes.xxh3);
}

// Both ends in this process.
struct Ends {
  explicit Ends(Patience out = kForEver, Patience in = kForEver)
      : page(SharedRegion::open(writers.address()).value()),
        outbox(ChunkOutbox::create(0, page, out).value()),
        inbox(ChunkInbox::open(3, outbox.address(), in).value()) {}
  SharedRegion writers = SharedRegion::create(1).value(), page;
  ChunkOutbox outbox;
  ChunkInbox inbox;
};

TEST(ChunkRing, HandsChunksOverInOrderAndHoldsFew) {
  constexpr int64_t kChunks = 50;
  Ends ends;
  std::atomic<int64_t> put = 0, taken = 0;
  Result<void> finished;
  std::thread sender([&] {
    for (int64_t i = 0; i < kChunks; ++i) {
      ASSERT_TRUE(ends.outbox.put(MadeUpChunk(i).chunk()).ok());
      EXPECT_LE(++put, taken + static_cast<int64_t>(kChunksInRing));
    }
    finished = ends.outbox.finish();
    EXPECT_EQ(taken, kChunks) << "finish() waits until all were taken";
  });
  EXPECT_TRUE(eventually([&] { return put == static_cast<int64_t>(kChunksInRing); }));
  for (int64_t i = 0; i < kChunks; ++i) {
    const auto chunk = ends.inbox.front();
    ASSERT_TRUE(chunk.ok() && chunk.value());
    expect_chunk(*chunk.value(), i);
    ++taken;
    ends.inbox.pop();
  }
  EXPECT_FALSE(ends.inbox.front().value());
  sender.join();
  EXPECT_TRUE(finished.ok());
}

TEST(ChunkRing, EachEndHearsWhyTheOtherOneGaveUp) {
  Ends ends;
  for (int64_t i = 0; i < static_cast<int64_t>(kChunksInRing); ++i)
    ASSERT_TRUE(ends.outbox.put(MadeUpChunk(i).chunk()).ok());
  Result<void> put;
  std::thread sender([&] { put = ends.outbox.put(MadeUpChunk(4).chunk()); });
  ends.inbox.abandon({Code::kNoSpace, "rank_00000.h5: no room"});
  sender.join();
  EXPECT_EQ(put.error().code, Code::kNoSpace);
  EXPECT_EQ(put.error().message, "rank 0, which writes the file: gave up: rank_00000.h5: no room");
  ends.outbox.fail({Code::kBug, "memory is faulty"});
  EXPECT_EQ(ends.inbox.front().error().code, Code::kBug);
  EXPECT_EQ(ends.inbox.front().error().message, "rank 3: memory is faulty");
}

TEST(ChunkRing, NobodyWaitsForEver) {
  const Patience short_one{std::chrono::milliseconds(30), &kGoesOn};
  Ends ends(short_one, short_one);
  EXPECT_EQ(ends.inbox.front().error().code, Code::kTimeout);
  EXPECT_EQ(ends.inbox.front().error().message, "rank 3: no progress for 30 ms");
  EXPECT_EQ(ends.outbox.finish().error().code, Code::kTimeout);
  const std::atomic<bool> stopped{true};
  const Patience none{kHours, &stopped};
  Ends others(none, none);
  EXPECT_EQ(others.inbox.front().error().code, Code::kAborted);
  EXPECT_EQ(others.outbox.finish().error().code, Code::kAborted);
}

TEST(ChunkRing, AChunkThatChangedOnItsWayIsNotTaken) {
  Ends ends;
  const MadeUpChunk made(0);
  ASSERT_TRUE(ends.outbox.put(made.chunk()).ok());
  auto region = SharedRegion::open(ends.outbox.address());
  const std::span<std::byte> all(region.value().data(), region.value().size());
  const auto at = std::search(all.begin(), all.end(), made.bytes.begin(), made.bytes.end());
  ASSERT_NE(at, all.end());
  at[50] ^= std::byte{4};
  const auto chunk = ends.inbox.front();
  EXPECT_EQ(chunk.error().code, Code::kCorrupt);
  EXPECT_THAT(chunk.error().message, HasSubstr("rank 3: /adam_v/w@7 chunk 0: CRC32C"));
  EXPECT_FALSE(ChunkInbox::open(3, "", kForEver).ok());
}

// A process that says an address, and then waits to be killed.
class Neighbour {
 public:
  // `body` is given what says the address, which does not return.
  explicit Neighbour(const std::function<void(const std::function<void(std::string)>&)>& body) {
    int words[2];
    EXPECT_EQ(::pipe(words), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      body([&](std::string said) {
        said.resize(SharedRegion::kMaxAddress);
        if (::write(words[1], said.data(), said.size()) < 0) ::_exit(1);
        for (;;) ::pause();
      });
      ::_exit(1);
    }
    char said[SharedRegion::kMaxAddress] = {};
    EXPECT_EQ(::read(words[0], said, sizeof said), ssize_t{sizeof said});
    address_ = said;
    ::close(words[0]);
    ::close(words[1]);
  }
  ~Neighbour() { die(); }
  void die() {
    if (pid_ < 0) return;
    EXPECT_EQ(::kill(pid_, SIGKILL), 0);
    EXPECT_EQ(::waitpid(pid_, nullptr, 0), std::exchange(pid_, -1));
  }
  const std::string& address() const { return address_; }

 private:
  pid_t pid_;
  std::string address_;
};

// With a page alone.
Neighbour neighbour_with_a_page() {
  return Neighbour([](const auto& say) { say(SharedRegion::create(1).value().address()); });
}

// However many chunks it has put before: those are taken, and then it is known at once.
TEST(ChunkRing, AProcessThatDiesIsNotWaitedFor) {
  for (int64_t chunks = 0; chunks <= static_cast<int64_t>(kChunksInRing); ++chunks) {
    Neighbour neighbour([&](const auto& say) {
      const SharedRegion made = SharedRegion::create(1).value(),
                         page = SharedRegion::open(made.address()).value();
      ChunkOutbox outbox = ChunkOutbox::create(0, page, kForEver).value();
      for (int64_t i = 0; i < chunks; ++i)
        if (!outbox.put(MadeUpChunk(i).chunk()).ok()) ::_exit(1);
      say(outbox.address());
    });
    auto inbox = ChunkInbox::open(3, neighbour.address(), kForEver);
    ASSERT_TRUE(inbox.ok()) << inbox.error().message;
    neighbour.die();
    for (int64_t i = 0; i < chunks; ++i) {
      const auto chunk = inbox.value().front();
      ASSERT_TRUE(chunk.ok() && chunk.value());
      expect_chunk(*chunk.value(), i);
      inbox.value().pop();
    }
    EXPECT_EQ(inbox.value().front().error().message, "rank 3: its process died");
  }
}

// Whether it waits for room, or for the last of them to be taken.
TEST(ChunkRing, AWriterThatDiesIsNotWaitedFor) {
  for (const bool full : {true, false}) {
    Neighbour writer = neighbour_with_a_page();
    const SharedRegion page = SharedRegion::open(writer.address()).value();
    ChunkOutbox outbox = ChunkOutbox::create(0, page, kAMinute).value();
    for (int64_t i = 0; i < static_cast<int64_t>(kChunksInRing); ++i)
      ASSERT_TRUE(outbox.put(MadeUpChunk(i).chunk()).ok());
    Result<void> waited;
    std::thread member(
        [&] { waited = full ? outbox.put(MadeUpChunk(4).chunk()) : outbox.finish(); });
    writer.die();
    member.join();
    EXPECT_EQ(waited.error().code, Code::kIo);
    EXPECT_EQ(waited.error().message, "rank 0, which writes the file: its process died");
  }
}

// What rank `of` would say to rank `to`.
std::string page_key(int of, int to) { return text("save/page_of/", of, "/for/", to); }

TEST(FileNeighbours, WhoDiesBeforeItHasSaidWhereItsChunksAreIsNotWaitedFor) {
  MemoryBallot ballot;
  Neighbour member = neighbour_with_a_page();
  FileNeighbours writer = FileNeighbours::create(ballot, 4, {4, 2}).value();
  ASSERT_TRUE(ballot.tell(page_key(5, 4), member.address()).ok());
  ASSERT_TRUE(writer.meet(kAMinute).ok());
  Result<std::vector<ChunkInbox>> opened = std::vector<ChunkInbox>();
  std::thread waits([&] { opened = open_inboxes(ballot, "an attempt", writer, kAMinute); });
  member.die();
  waits.join();
  EXPECT_EQ(opened.error().message, "rank 5: its process died");
}

// As of processes in other containers, either of which may see that of the other one alone.
TEST(FileNeighbours, WhoMayNotSeeTheOthersMemorySaysSoAtTheStart) {
  for (const int rank : {4, 6}) {
    MemoryBallot ballot;
    FileNeighbours mine = FileNeighbours::create(ballot, rank, {4, 3}).value();
    const FileNeighbours fifth = FileNeighbours::create(ballot, 5, {4, 3}).value();
    const int other = rank == 4 ? 6 : 4;
    ASSERT_TRUE(ballot.tell(page_key(other, rank), "1:1000000:5").ok());
    const auto met = mine.meet(kAMinute);
    EXPECT_EQ(met.error().code, Code::kConfig);
    EXPECT_THAT(met.error().message, HasSubstr(text("the shared memory of rank ", other)));
    EXPECT_THAT(met.error().message, HasSubstr("checkpoint.ranks_per_file = 1"));
  }
}

std::vector<std::string> rank_files(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const std::string& name : disk().list(directory).value())
    if (name.starts_with("rank_")) names.push_back(name);
  return names;
}

EngineOptions sharing(const std::filesystem::path& folder, int ranks_per_file,
                      std::vector<int> nodes = {}) {
  EngineOptions options = options_in(folder);
  options.ranks_per_file = ranks_per_file;
  options.node_of_rank = std::move(nodes);
  return options;
}

// Loads at a few world sizes, and verifies.
void expect_whole(const std::filesystem::path& directory,
                  const std::vector<test_support::TensorSpec>& model, int64_t step) {
  for (const int world_size : {1, 3})
    for (int rank = 0; rank < world_size; ++rank) {
      RankState state = state_of(model, rank, world_size);
      const auto loaded = newest_valid(disk(), directory.parent_path(), state.targets(), 2);
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      EXPECT_EQ(loaded.value().directory, directory);
      EXPECT_EQ(loaded.value().fallbacks, 0);
      EXPECT_EQ(state.difference(step), "");
    }
  const auto problems = verify(disk(), directory, 2);
  ASSERT_TRUE(problems.ok()) << problems.error().message;
  for (const VerifyProblem& problem : problems.value())
    ADD_FAILURE() << problem.where << ": " << problem.what;
}

TEST(SharedFile, OfUnevenNodesIsLoadedAtAnyWorldSizeByEachCodecAndThreadCount) {
  const std::vector<int> nodes = {0, 0, 0, 0, 0, 1, 1, 1};
  for (const Codec codec : {Codec::kZstd, Codec::kNone})
    for (const int threads : {1, 3}) {
      const TempDir dir;
      EngineOptions options = sharing(dir / "c", 4, nodes);
      options.codec = codec;
      options.threads = threads;
      World world(disk(), options, large_model(), 8);
      ASSERT_EQ(world.error, "");
      int64_t raw_bytes = 0;
      const auto reports = world.save(5);
      for (const SaveReport& report : reports) ASSERT_TRUE(report.committed) << report.error;
      for (const TensorPiece& piece : state_of(large_model(), 0, 1).pieces)
        raw_bytes += piece.size_bytes();
      EXPECT_EQ(reports[0].raw_bytes + reports[4].raw_bytes + reports[5].raw_bytes, raw_bytes);
      EXPECT_THAT(rank_files(reports[0].directory),
                  ElementsAre("rank_00000.h5", "rank_00004.h5", "rank_00005.h5"));
      const Manifest manifest = read_manifest(disk(), reports[0].directory).value();
      EXPECT_EQ(manifest.format_version, kFormatVersion) << "an earlier program reads it";
      EXPECT_EQ(manifest.world_size, 8);
      expect_whole(reports[0].directory, large_model(), 5);
    }
}

TEST(SharedFile, TheSameStatesGiveTheSameFileForAnyThreadCount) {
  std::string contents[2];
  for (size_t i = 0; i < 2; ++i) {
    const TempDir dir;
    EngineOptions options = sharing(dir / "c", 3);
    options.threads = i == 0 ? 1 : 5;
    World world(disk(), options, large_model(), 3);
    const auto reports = world.save(3);
    ASSERT_TRUE(reports[0].committed) << reports[0].error;
    contents[i] = read_file(disk(), reports[0].directory / "rank_00000.h5").value();
  }
  EXPECT_GT(contents[0].size(), 1000u);
  EXPECT_TRUE(contents[0] == contents[1]);
}

TEST(SharedFile, MomentsInBf16AndTensorsThatTheWriterHasNoneOf) {
  const TempDir dir;
  World world(disk(), sharing(dir / "c", 8), odd_model(), 8, Dtype::kBf16);
  const auto reports = world.save(2);
  ASSERT_TRUE(reports[0].committed) << reports[0].error;
  RankState state = state_of(odd_model(), 0, 1, Dtype::kBf16);
  ASSERT_TRUE(newest_valid(disk(), dir / "c", state.targets(), 1).ok());
  EXPECT_EQ(state.difference(2), "");
  EXPECT_TRUE(verify(disk(), reports[0].directory, 1).value().empty());
}

// Of a scalar on four ranks the last one has all.
TEST(SharedFile, OfRanksWithoutStateThereIsNone) {
  for (const int ranks_per_file : {2, 4}) {
    const TempDir dir;
    World world(disk(), sharing(dir / "c", ranks_per_file), {{"scale", {}}}, 4);
    const auto reports = world.save(2);
    ASSERT_TRUE(reports[0].committed) << reports[0].error;
    EXPECT_THAT(rank_files(reports[0].directory),
                ElementsAre(ranks_per_file == 2 ? "rank_00002.h5" : "rank_00000.h5"));
    expect_whole(reports[0].directory, {{"scale", {}}}, 2);
  }
}

// Groups of 3 on nodes of 10, and parts of the manifest for 8 ranks: ranks 6 to 8 share a file.
TEST(SharedFile, IsNamedInThePartOfItsWriter) {
  const TempDir dir;
  std::vector<int> nodes(20);
  for (size_t rank = 0; rank < nodes.size(); ++rank) nodes[rank] = static_cast<int>(rank / 10);
  EngineOptions options = sharing(dir / "c", 3, nodes);
  options.most_ranks_in_one_manifest = 0;
  World world(disk(), options, odd_model(), 20);
  const auto reports = world.save(2);
  ASSERT_TRUE(reports[0].committed) << reports[0].error;
  EXPECT_THAT(rank_files(reports[0].directory),
              ElementsAre("rank_00000.h5", "rank_00003.h5", "rank_00006.h5", "rank_00009.h5",
                          "rank_00010.h5", "rank_00013.h5", "rank_00016.h5", "rank_00019.h5"));
  Manifest manifest = read_manifest(disk(), reports[0].directory).value();
  EXPECT_EQ(manifest.format_version, kPartsFormatVersion);
  ASSERT_EQ(manifest.parts.size(), 3u);
  EXPECT_EQ(manifest.parts[0].file_count, 3);
  expect_whole(reports[0].directory, odd_model(), 2);
}

// At its end, or, of all four, while the others still have chunks.
TEST(SharedFile, ADiskThatIsFullAtItsWriterEndsTheSaveAtAllRanks) {
  for (const auto& [ranks_per_file, full] : Runs{{2, 0}, {2, 2}, {4, 0}}) {
    SCOPED_TRACE(text(ranks_per_file, " a file, rank ", full));
    const TempDir dir;
    std::vector<std::unique_ptr<FaultyFileSystem>> disks;
    World::Disks seams;
    for (int rank = 0; rank < 4; ++rank)
      seams.push_back(disks.emplace_back(std::make_unique<FaultyFileSystem>(disk())).get());
    FaultyFileSystem& full_disk = *disks[static_cast<size_t>(full)];
    EngineOptions options = sharing(dir / "c", ranks_per_file);
    options.codec = Codec::kNone;
    World world(seams, options, large_model());
    ASSERT_TRUE(world.save(1)[0].committed);
    full_disk.set_plan({.byte_limit = 100000});
    for (const SaveReport& report : world.save(2)) {
      EXPECT_FALSE(report.committed);
      EXPECT_EQ(report.code, Code::kNoSpace);
      EXPECT_THAT(report.error, HasSubstr(text("rank ", full, ": ")));
      EXPECT_THAT(report.error, HasSubstr(shard_file_name(full)));
      if (ranks_per_file == 4) {
        EXPECT_THAT(report.error, HasSubstr("rank 3: rank 0, which writes the file: gave up: "));
      }
    }
    full_disk.set_plan({});
    const auto reports = world.save(3);
    ASSERT_TRUE(reports[0].committed) << reports[0].error;
    expect_whole(reports[0].directory, large_model(), 3);
    EXPECT_EQ(list_checkpoints(disk(), dir / "c").value().size(), 2u) << "the rest is removed";
  }
}

// State that cannot be read when it is told so.
class FailingSource final : public StateSource {
 public:
  explicit FailingSource(std::vector<LivePiece> layout) : behind_(std::move(layout)) {}
  std::span<const LivePiece> layout() const override { return behind_.layout(); }
  Result<void> read(const Reading& reading) override {
    if (fails) return Error{Code::kIo, "the device is gone"};
    return behind_.read(reading);
  }
  bool fails = false;

 private:
  HostState behind_;
};

// Whoever fails, all hear which rank it was, and the next save works.
TEST(SharedFile, ARankThatFailsBeforeItsFirstChunkEndsTheSave) {
  const TempDir dir;
  MemoryBallot ballot;
  std::vector<std::unique_ptr<RankState>> states;
  std::vector<std::unique_ptr<FailingSource>> sources;
  std::vector<std::unique_ptr<ProgressPage>> pages;
  std::vector<std::unique_ptr<Engine>> engines;
  EngineOptions options = sharing(dir / "c", 3);
  options.world_size = 3;
  for (options.rank = 0; options.rank < 3; ++options.rank) {
    states.push_back(std::make_unique<RankState>(state_of(odd_model(), options.rank, 3)));
    sources.push_back(std::make_unique<FailingSource>(states.back()->live()));
    pages.push_back(ProgressPage::in_memory());
    engines.push_back(
        Engine::create(options, disk(), ballot, *pages.back(), *sources.back()).value());
  }
  const auto save = [&](int64_t step) {
    for (auto& state : states) state->fill(step);
    for (auto& engine : engines) EXPECT_TRUE(engine->begin_save({step, step}).value());
    std::vector<SaveReport> reports;
    for (auto& engine : engines) {
      EXPECT_TRUE(drain(*engine));
      reports.push_back(engine->take_reports().at(0));
    }
    return reports;
  };
  int64_t step = 0;
  for (const size_t failing : {0u, 1u, 2u}) {
    SCOPED_TRACE(text("rank ", failing));
    sources[failing]->fails = true;
    for (const SaveReport& report : save(++step)) {
      EXPECT_FALSE(report.committed);
      EXPECT_THAT(report.error, HasSubstr(text("rank ", failing, ": the device is gone")));
      if (failing > 0) {
        EXPECT_THAT(report.error,
                    HasSubstr(text("rank ", failing, ": failed before its first chunk")));
      }
    }
    sources[failing]->fails = false;
    const auto reports = save(++step);
    ASSERT_TRUE(reports[0].committed) << reports[0].error;
    expect_whole(reports[0].directory, odd_model(), step);
  }
  EXPECT_EQ(ballot.size(), 1u) << "but for the last outcome nothing stays";
}

}  // namespace
}  // namespace lockstep::checkpoint
