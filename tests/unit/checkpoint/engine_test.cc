#include "checkpoint/save/engine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>

#include "base/check.h"
#include "base/clock.h"
#include "checkpoint/save/fence.h"
#include "checkpoint/save/retention.h"
#include "checkpoint/tools/verify.h"
#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint {
namespace {

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  return disk().list(folder).value();
}

TEST(Engine, WhatIsSavedIsLoadedByEachCodecAndThreadCount) {
  for (const Codec codec : {Codec::kZstd, Codec::kNone, Codec::kGzip})
    for (int threads : {1, 3}) {
      const TempDir dir;
      auto options = options_in(dir / "checkpoints");
      options.codec = codec;
      options.threads = threads;
      World world(disk(), options, large_model(), 2);
      ASSERT_EQ(world.error, "");
      for (const SaveReport& report : world.save(7)) EXPECT_EQ(report.error, "");
      RankState loaded = state_of(large_model(), 0, 1);
      const auto newest = newest_valid(disk(), dir / "checkpoints", loaded.targets(), threads);
      ASSERT_TRUE(newest.ok()) << newest.error().message;
      EXPECT_EQ(newest.value().manifest.step, 7);
      EXPECT_EQ(newest.value().manifest.trainer_state, "{\"step\":7}");
      EXPECT_EQ(loaded.difference(7), "");
      const auto problems = verify(disk(), newest.value().directory, threads);
      ASSERT_TRUE(problems.ok()) << problems.error().message;
      EXPECT_TRUE(problems.value().empty()) << problems.value().front().what;
    }
}

TEST(Engine, TheSameStateGivesTheSameFileForAnyThreadCount) {
  std::string contents[2];
  for (int i = 0; i < 2; ++i) {
    if (i == 1) system_clock().sleep_ns(1'100'000'000);  // no time is in it either
    const TempDir dir;
    auto options = options_in(dir / "c");
    options.threads = i == 0 ? 1 : 5;
    World world(disk(), options, large_model(), 1);
    const auto reports = world.save(3);
    contents[i] = read_file(disk(), reports[0].directory / "rank_00000.h5").value();
  }
  EXPECT_GT(contents[0].size(), 1000u);
  EXPECT_TRUE(contents[0] == contents[1]);
}

// Memory whose first number changes when its last page is read for the first time: whoever reads
// all of it twice sees two states.
class ShiftingMemory {
 public:
  ShiftingMemory() {
    void* const memory =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    LOCKSTEP_CHECK(memory != MAP_FAILED);
    numbers_ = static_cast<volatile float*>(memory);
    struct sigaction action {};
    action.sa_handler = [](int) {
      if (::mprotect(last_page(), kPage, PROT_READ | PROT_WRITE) != 0) ::_exit(1);
      numbers_[0] = 2;
    };
    LOCKSTEP_CHECK(::sigaction(SIGSEGV, &action, &before_) == 0 &&
                   ::mprotect(last_page(), kPage, PROT_NONE) == 0);
  }
  ~ShiftingMemory() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(const_cast<float*>(numbers_), kBytes);
  }
  ShiftingMemory(const ShiftingMemory&) = delete;
  ShiftingMemory& operator=(const ShiftingMemory&) = delete;

  static constexpr int64_t kCount = 65536;
  bool shifted() const { return numbers_[0] == 2; }
  std::span<const std::byte> bytes() const {
    return {reinterpret_cast<const std::byte*>(const_cast<float*>(numbers_)), kBytes};
  }

 private:
  // Whole pages on every host: Arm's kernels may have pages of 64 KiB.
  static constexpr size_t kPage = 65536, kBytes = kCount * sizeof(float);
  static void* last_page() {
    return const_cast<float*>(numbers_) + (kBytes - kPage) / sizeof(float);
  }
  static inline volatile float* numbers_ = nullptr;
  struct sigaction before_ {};
};

TEST(Engine, AStateThatChangesWhileItIsCopiedIsAnError) {
  const ShiftingMemory state;
  const TempDir dir;
  MemoryBallot ballot;
  const auto page = ProgressPage::in_memory();
  const TensorPiece piece{"w", Kind::kParam, {ShiftingMemory::kCount}, 0, ShiftingMemory::kCount};
  HostState source({{piece, state.bytes()}});
  const auto created = Engine::create(options_in(dir / "c"), disk(), ballot, *page, source);
  ASSERT_TRUE(created.ok()) << created.error().message;
  Engine& engine = *created.value();
  ASSERT_FALSE(state.shifted());
  ASSERT_TRUE(engine.begin_save({.step = 1}).value());
  const auto read =
      engine.lend_staged()->read({.take = [](const StateSource::Part&) { return Result<void>(); }});
  EXPECT_EQ(read.error().message, "the save of the same step has no copy");
  ASSERT_TRUE(drain(engine));
  EXPECT_TRUE(state.shifted());
  const auto reports = engine.take_reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_FALSE(reports[0].committed);
  EXPECT_THAT(reports[0].error, HasSubstr("changed while it was copied"));
}

TEST(Engine, AStaleCopyIsAnErrorAndASkippedUpdateIsNone) {
  const TempDir dir;
  World world(disk(), options_in(dir / "c"), odd_model(), 2);
  ASSERT_TRUE(world.save(1)[0].committed);
  for (const SaveReport& report : world.save(SaveRequest{.step = 2, .updates = 2})) {
    EXPECT_FALSE(report.committed);
    EXPECT_THAT(report.error, HasSubstr("unchanged since step 1, although 1 updates were made"));
  }
  // Step 2 had no valid token: the same bytes are right. They get a directory of their own.
  for (const SaveReport& report : world.save(SaveRequest{.step = 2, .updates = 1}))
    EXPECT_TRUE(report.committed) << report.error;
  EXPECT_FALSE(world.save(SaveRequest{.step = 3, .updates = 2})[0].committed);
  EXPECT_TRUE(world.save(3)[0].committed);
  const auto entries = list_checkpoints(disk(), dir / "c").value();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[1].directory.filename(), "step_00000002.g1-7f2a91-2");
  EXPECT_TRUE(entries[1].committed);
}

TEST(Engine, ACommitPrunesAndAStartRemovesOrphansOfEarlierGenerations) {
  const TempDir dir;
  auto options = options_in(dir / "c");
  options.retention.keep_latest_k = 2;
  World world(disk(), options, odd_model(), 2);
  for (int64_t step : {1, 2, 3, 4}) ASSERT_TRUE(world.save(step)[0].committed);
  using testing::ElementsAre;
  EXPECT_THAT(names_in(dir / "c"), ElementsAre("GENERATION", "LATEST", "step_00000003.g1-7f2a91",
                                               "step_00000004.g1-7f2a91"));
  EXPECT_EQ(read_file(disk(), dir / "c" / "LATEST").value(), "step_00000004.g1-7f2a91\n");
  EXPECT_THAT(names_in(dir / "c" / "step_00000004.g1-7f2a91"),
              ElementsAre("index.h5", "manifest.json", "rank_00000.h5", "rank_00001.h5"));
  for (const char* name :
       {"step_00000005.g1-aaaaaa", "step_00000006.g2-bbbbbb", "step_00000007.g3-cccccc", "notes"})
    ASSERT_TRUE(disk().make_directories(dir / "c" / name).ok());
  const World next(disk(), options_in(dir / "c", 2), odd_model(), 2);
  EXPECT_THAT(
      names_in(dir / "c"),
      ElementsAre("GENERATION", "LATEST", "notes", "step_00000003.g1-7f2a91",
                  "step_00000004.g1-7f2a91", "step_00000006.g2-bbbbbb", "step_00000007.g3-cccccc"));
}

// The storage went away, and the empty mount point, or another disk, stands in its place.
TEST(Engine, AFolderWithoutItsFenceTakesNoCommit) {
  const TempDir dir;
  World world(disk(), options_in(dir / "c"), odd_model(), 2);
  ASSERT_TRUE(world.save(10)[0].committed);
  const auto fence = dir / "c" / kFenceName;
  const std::string line = read_file(disk(), fence).value();
  std::filesystem::remove(fence);
  const SaveReport refused = world.save(20)[0];
  EXPECT_FALSE(refused.committed);
  EXPECT_EQ(refused.code, Code::kIo);
  EXPECT_THAT(refused.error, HasSubstr("which this run wrote, is missing"));
  ASSERT_TRUE(publish_file(disk(), fence, line).ok());
  EXPECT_TRUE(world.save(30)[0].committed);
}

TEST(Engine, TheBestOneStays) {
  const TempDir dir;
  EngineOptions options = options_in(dir / "c");
  options.retention = {.keep_latest_k = 2, .keep_best = true};
  World world(disk(), options, odd_model(), 2);
  for (const auto& [step, loss] : std::vector<std::pair<int64_t, double>>{
           {10, 3}, {20, 1.5}, {30, 2}, {40, 2.5}, {50, 1.75}}) {
    for (auto& state : world.states) state->fill(step);
    ASSERT_TRUE(world.save(SaveRequest{.step = step, .updates = step, .validation_loss = loss})[0]
                    .committed);
  }
  std::vector<int64_t> steps;
  const auto entries = list_checkpoints(disk(), dir / "c").value();
  for (const auto& entry : entries) steps.push_back(entry.step);
  EXPECT_THAT(steps, testing::ElementsAre(50, 40, 20));
  EXPECT_EQ(best_of(entries)->step, 20);
}

TEST(Engine, AnEphemeralSaveGoesWithTheNextCommit) {
  const TempDir dir;
  World world(disk(), options_in(dir / "c"), odd_model(), 2);
  const auto ephemeral = [&](int64_t step) {
    for (auto& state : world.states) state->fill(step);
    return world.save(SaveRequest{.step = step, .updates = step, .ephemeral = true})[0].committed;
  };
  const auto steps = [&] {
    std::vector<int64_t> all;
    const auto entries = list_checkpoints(disk(), dir / "c").value();
    for (const auto& entry : entries) {
      EXPECT_EQ(entry.ephemeral, entry.step % 10 != 0);
      all.push_back(entry.step);
    }
    return all;
  };
  using testing::ElementsAre;
  ASSERT_TRUE(world.save(10)[0].committed);
  for (int64_t step : {12, 14, 16}) ASSERT_TRUE(ephemeral(step));
  EXPECT_THAT(steps(), ElementsAre(16, 10));
  RankState state = state_of(odd_model(), 0, 1);  // used like any other
  EXPECT_EQ(newest_valid(disk(), dir / "c", state.targets(), 1).value().manifest.step, 16);
  EXPECT_EQ(state.difference(16), "");
  ASSERT_TRUE(world.save(20)[0].committed);
  EXPECT_THAT(steps(), ElementsAre(20, 10));
}

TEST(Engine, AnOlderGenerationThatGoesOnCommitsNothing) {
  const TempDir dir;
  World old(disk(), options_in(dir / "c", 1), odd_model(), 2);
  ASSERT_TRUE(old.save(1)[0].committed);
  World next(disk(), options_in(dir / "c", 2), odd_model(), 3);
  for (const SaveReport& report : old.save(2)) {
    EXPECT_FALSE(report.committed);
    EXPECT_THAT(report.error, HasSubstr("now belongs to generation g2-7f2a91"));
  }
  EXPECT_EQ(list_checkpoints(disk(), dir / "c").value().size(), 1u);
  EXPECT_TRUE(next.save(2)[0].committed);
}

TEST(Engine, OptionsThatCannotBeAreErrorsAtOnce) {
  const TempDir dir;
  const auto error_with = [&](auto change) {
    auto options = options_in(dir / "c");
    change(options);
    return World(disk(), options, odd_model(), 1).error;
  };
  EXPECT_THAT(error_with([](auto& o) { o.nonce = ""; }), HasSubstr("nonce"));
  EXPECT_THAT(error_with([](auto& o) { o.threads = 0; }), HasSubstr("threads"));
  EXPECT_THAT(error_with([](auto& o) { o.retention.keep_latest_k = 1; }), HasSubstr("at least 2"));
  EXPECT_EQ(error_with([](auto&) {}), "");
}

}  // namespace
}  // namespace lockstep::checkpoint
