#include "checkpoint/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "checkpoint/retention.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/world.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::FaultyFileSystem;
using lockstep::test_support::Fault;
using lockstep::test_support::Op;
using lockstep::test_support::TempDir;
using test_support::large_model;
using test_support::odd_model;
using test_support::options_in;
using test_support::RankState;
using test_support::state_of;
using test_support::World;
using testing::HasSubstr;

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  return posix_file_system().list(folder).value();
}

TEST(Engine, WhatIsSavedIsLoadedByEachCodecAndThreadCount) {
  for (const char* codec : {"zstd", "none", "gzip"})
    for (int threads : {1, 3}) {
      const TempDir dir;
      auto options = options_in(dir / "checkpoints");
      options.codec = codec;
      options.threads = threads;
      World world(posix_file_system(), options, large_model(), 2);
      ASSERT_EQ(world.error, "");
      for (const SaveReport& report : world.save(7)) EXPECT_EQ(report.error, "");
      RankState loaded = state_of(large_model(), 0, 1);
      const auto newest =
          newest_valid(posix_file_system(), dir / "checkpoints", loaded.targets(), threads);
      ASSERT_TRUE(newest.ok()) << newest.error().message;
      EXPECT_EQ(newest.value().manifest.step, 7);
      EXPECT_EQ(newest.value().manifest.trainer_state, "{\"step\":7}");
      EXPECT_EQ(loaded.difference(7), "");
      const auto problems = verify(posix_file_system(), newest.value().directory, threads);
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
    World world(posix_file_system(), options, large_model(), 1);
    const auto reports = world.save(3);
    contents[i] = read_file(posix_file_system(), reports[0].directory / "rank_00000.h5").value();
  }
  EXPECT_GT(contents[0].size(), 1000u);
  EXPECT_TRUE(contents[0] == contents[1]);
}

TEST(Reshard, AnyWorldSizeToAnyOther) {
  const auto model = odd_model();
  for (int from : {1, 2, 3, 4, 5, 7, 8}) {
    const TempDir dir;
    World world(posix_file_system(), options_in(dir / "c"), model, from);
    ASSERT_EQ(world.error, "");
    ASSERT_TRUE(world.save(from)[0].committed);
    const auto newest = newest_valid(posix_file_system(), dir / "c", {}, 1);
    ASSERT_TRUE(newest.ok()) << newest.error().message;
    const Manifest& manifest = newest.value().manifest;
    for (int to : {1, 2, 3, 4, 5, 7, 8}) {
      Fingerprints whole;
      for (int rank = 0; rank < to; ++rank) {
        RankState state = state_of(model, rank, to);
        const auto loaded = load_pieces(posix_file_system(), newest.value().directory, manifest,
                                        state.targets(), 1);
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        ASSERT_EQ(state.difference(from), "") << from << " -> " << to << " rank " << rank;
        for (const auto& [key, sum] : fingerprints(state.targets())) whole[key] += sum;
      }
      EXPECT_EQ(whole.size(), model.size() * 3);
      EXPECT_TRUE(check_fingerprints(manifest, whole).ok());
      whole.begin()->second ^= 1;
      EXPECT_FALSE(check_fingerprints(manifest, whole).ok());
    }
  }
}

TEST(Reshard, ReadsOnlyTheChunksThatOverlap) {
  const TempDir dir;
  World world(posix_file_system(), options_in(dir / "c"), large_model(), 1);
  const auto directory = world.save(1)[0].directory;
  const Manifest manifest = read_manifest(posix_file_system(), directory).value();
  std::vector<float> some(10);
  const TensorPiece piece{"mlp.weight", Kind::kParam, {1031, 607}, 300000, 10};
  const auto loaded = load_pieces(posix_file_system(), directory, manifest,
                                  {{piece, std::as_writable_bytes(std::span(some))}}, 2);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded.value().wanted_bytes, 40);
  EXPECT_LT(loaded.value().read_bytes, (1 << 20) + 4);
  EXPECT_EQ(some[9], test_support::value_at("param/mlp.weight", 1, 300009));
}

TEST(Load, NamesAndShapesThatDoNotMatchAreConfigErrorsWithBothSides) {
  const TempDir dir;
  World world(posix_file_system(), options_in(dir / "c"), odd_model(), 1);
  world.save(1);
  auto model = odd_model();
  model[0].shape = {264, 33};
  model[1].name = "layers.0.wx.weight";
  RankState state = state_of(model, 0, 1);
  const auto loaded = newest_valid(posix_file_system(), dir / "c", state.targets(), 1);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kConfig);
  EXPECT_THAT(loaded.error().message, HasSubstr("param/embed.weight: the model has [264, 33], "
                                                "the checkpoint [263, 33]"));
  EXPECT_THAT(loaded.error().message, HasSubstr("and 3 more"));
}

TEST(Engine, OneInFlightSkipsOrWaits) {
  const TempDir dir;
  FaultyFileSystem slow(posix_file_system());
  auto options = options_in(dir / "c");
  RankState state = state_of(odd_model(), 0, 1);
  MemoryBallot ballot;
  const auto page = ProgressPage::in_memory();
  for (bool wait : {false, true}) {
    options.wait_when_busy = wait;
    slow.set_plan({.delay_ns = 2'000'000});
    const auto engine = Engine::create(options, slow, ballot, *page, state.live());
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    Engine& e = *engine.value();
    state.fill(wait ? 10 : 1);
    ASSERT_TRUE(e.begin_save(wait ? 10 : 1, "{}").value());
    e.wait_staged();
    state.fill(wait ? 20 : 2);  // training goes on; the snapshot must not change
    EXPECT_EQ(e.begin_save(wait ? 20 : 2, "{}").value(), wait);
    e.wait_staged();
    e.drain();
    EXPECT_EQ(e.phase(), SavePhase::kCommitted);
    const auto reports = e.take_reports();
    EXPECT_EQ(e.phase(), SavePhase::kIdle);
    ASSERT_EQ(reports.size(), wait ? 2u : 1u);
    for (const auto& report : reports) EXPECT_TRUE(report.committed) << report.error;
    EXPECT_EQ(page->read().committed_step, wait ? 20 : 1);
    RankState loaded = state_of(odd_model(), 0, 1);
    ASSERT_TRUE(newest_valid(posix_file_system(), dir / "c", loaded.targets(), 1).ok());
    EXPECT_EQ(loaded.difference(wait ? 20 : 1), "");
  }
}

TEST(Engine, AStaleCopyIsAnError) {
  const TempDir dir;
  World world(posix_file_system(), options_in(dir / "c"), odd_model(), 2);
  ASSERT_TRUE(world.save(1)[0].committed);
  for (const SaveReport& report : world.save(2, /*fill=*/false)) {
    EXPECT_FALSE(report.committed);
    EXPECT_THAT(report.error, HasSubstr("bit for bit, that of step 1"));
  }
  ASSERT_TRUE(world.save(2)[0].committed);  // the same step again: a directory of its own
  const auto entries = list_checkpoints(posix_file_system(), dir / "c").value();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].directory.filename(), "step_00000002.g1-7f2a91-2");
  EXPECT_TRUE(entries[0].committed);
}

#ifndef __SANITIZE_THREAD__  // the race is the point
TEST(Engine, AStateThatChangesWhileItIsCopiedIsAnError) {
  RankState state = state_of(large_model(), 0, 1);
  state.fill(1);
  const TempDir dir;
  MemoryBallot ballot;
  const auto page = ProgressPage::in_memory();
  const auto created = Engine::create(options_in(dir / "c"), posix_file_system(), ballot, *page,
                                      state.live());
  ASSERT_TRUE(created.ok()) << created.error().message;
  Engine& engine = *created.value();
  std::string seen;
  for (int step = 1; step < 200 && seen.empty(); ++step) {  // until one hits the two passes
    ASSERT_TRUE(engine.begin_save(step, "{}").value());
    volatile float* const last = &state.values.back().back();
    for (float x = 0; engine.phase() == SavePhase::kStaging; x += 1) *last = x;
    engine.drain();
    for (const auto& report : engine.take_reports()) seen += report.error;
  }
  EXPECT_THAT(seen, HasSubstr("changed while it was copied"));
}
#endif

TEST(Engine, ADeadRankEndsTheAttemptAfterTheDeadline) {
  const TempDir dir;
  auto options = options_in(dir / "c");
  options.vote_deadline = std::chrono::milliseconds(200);
  World world(posix_file_system(), options, odd_model(), 3);
  world.engines.pop_back();
  const auto reports = world.save(4);
  ASSERT_EQ(reports.size(), 2u);
  for (const auto& report : reports) {
    EXPECT_FALSE(report.committed);
    EXPECT_THAT(report.error, HasSubstr("from rank 2"));
  }
  EXPECT_THAT(names_in(dir / "c"), testing::IsEmpty());
}

TEST(Engine, RetentionKeepsTheLastKAndRemovesOrphansOfEarlierGenerations) {
  const TempDir dir;
  auto options = options_in(dir / "c");
  options.keep_latest_k = 2;
  World world(posix_file_system(), options, odd_model(), 2);
  for (int64_t step : {1, 2, 3, 4}) ASSERT_TRUE(world.save(step)[0].committed);
  using testing::ElementsAre;
  EXPECT_THAT(names_in(dir / "c"),
              ElementsAre("LATEST", "step_00000003.g1-7f2a91", "step_00000004.g1-7f2a91"));
  EXPECT_EQ(read_file(posix_file_system(), dir / "c" / "LATEST").value(),
            "step_00000004.g1-7f2a91\n");
  EXPECT_THAT(names_in(dir / "c" / "step_00000004.g1-7f2a91"),
              ElementsAre("index.h5", "manifest.json", "rank_00000.h5", "rank_00001.h5"));
  for (const char* name : {"step_00000005.g1-aaaaaa", "step_00000006.g2-bbbbbb",
                           "step_00000007.g3-cccccc", "notes"})
    ASSERT_TRUE(posix_file_system().make_directories(dir / "c" / name).ok());
  const World next(posix_file_system(), options_in(dir / "c", 2), odd_model(), 2);
  EXPECT_THAT(names_in(dir / "c"),
              ElementsAre("LATEST", "notes", "step_00000003.g1-7f2a91", "step_00000004.g1-7f2a91",
                          "step_00000006.g2-bbbbbb", "step_00000007.g3-cccccc"));
}

TEST(Engine, OptionsThatCannotBeAreErrorsAtOnce) {
  const TempDir dir;
  const auto error_with = [&](auto change) {
    auto options = options_in(dir / "c");
    change(options);
    return World(posix_file_system(), options, odd_model(), 1).error;
  };
  EXPECT_THAT(error_with([](auto& o) { o.codec = "lz4"; }), HasSubstr("\"lz4\""));
  EXPECT_THAT(error_with([](auto& o) { o.nonce = ""; }), HasSubstr("nonce"));
  EXPECT_THAT(error_with([](auto& o) { o.threads = 0; }), HasSubstr("threads"));
  EXPECT_THAT(error_with([](auto& o) { o.keep_latest_k = 1; }), HasSubstr("at least 2"));
  EXPECT_EQ(error_with([](auto&) {}), "");
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int64_t kAllowedGrowthKib = 1 << 20;  // the sanitizers keep records of their own
#else
constexpr int64_t kAllowedGrowthKib = 2048;
#endif

int64_t open_descriptors() {
  return static_cast<int64_t>(posix_file_system().list("/proc/self/fd").value().size());
}
int64_t resident_kib() {
  std::string statm(64, '\0');
  const auto file = posix_file_system().open("/proc/self/statm").value().release();
  (void)file->read_at(std::as_writable_bytes(std::span(statm)), 0).ok();  // ends early: fine
  delete file;
  return std::stoll(statm.substr(statm.find(' '))) * 4;
}

TEST(Engine, AHundredSavesLeakNothing) {
  const TempDir dir;
  World world(posix_file_system(), options_in(dir / "c"), odd_model(), 2);
  for (int64_t step = 1; step <= 20; ++step) ASSERT_TRUE(world.save(step)[0].committed);
  const int64_t descriptors = open_descriptors(), resident = resident_kib();
  for (int64_t step = 21; step <= 120; ++step) ASSERT_TRUE(world.save(step)[0].committed);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_LT(resident_kib() - resident, kAllowedGrowthKib);
}

TEST(Engine, FailedSavesLeakNothing) {
  const TempDir dir;
  FaultyFileSystem disk(posix_file_system());
  World world(disk, options_in(dir / "c"), odd_model(), 1);
  ASSERT_TRUE(world.save(1)[0].committed);
  int64_t descriptors = 0, resident = 0;
  for (int64_t step = 2; step <= 60; ++step) {
    disk.set_plan({.op = Op::kWrite, .at_call = step % 3 + 1, .fault = Fault::kNoSpace,
                   .and_after = true});
    EXPECT_FALSE(world.save(step)[0].committed);
    if (step == 20) descriptors = open_descriptors(), resident = resident_kib();
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_LT(resident_kib() - resident, kAllowedGrowthKib);
}

}  // namespace
}  // namespace lockstep::checkpoint
