// Snapshots in host memory: what is written comes back exactly at any world size, what is torn,
// damaged, foreign or overtaken is never used.
#include "checkpoint/snapshot/memory_tier.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/memory_world.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::Fault;
using lockstep::test_support::FaultyFileSystem;
using lockstep::test_support::Op;
using lockstep::test_support::TempDir;
using test_support::drain;
using test_support::find_snapshots;
using test_support::Found;
using test_support::load_at;
using test_support::MemoryWorld;
using test_support::odd_model;
using test_support::options_in;
using test_support::World;

std::vector<int64_t> steps_of(const Found& found) {
  std::vector<int64_t> steps;
  for (const Snapshot& s : found.snapshots) steps.push_back(s.whole.step);
  return steps;
}

std::filesystem::path slot_path(const std::filesystem::path& root, int node, int rank,
                                const char* kind, int slot, int64_t generation = 1) {
  return root / text("node_", node) / text("g", generation, "-abc", generation) /
         text("rank_", rank, ".", kind, ".", slot);
}

void flip(const std::filesystem::path& path, int64_t offset) {
  const auto file = posix_file_system().open(path).value();
  std::byte byte{};
  ASSERT_TRUE(file->read_at({&byte, 1}, offset).ok());
  byte ^= std::byte{4};
  ASSERT_TRUE(file->write_at({&byte, 1}, offset).ok());
}

TEST(MemoryTier, ComesBackExactlyAtAnyWorldSize) {
  for (int from : {1, 2, 3, 5}) {
    const TempDir dir;
    MemoryWorld world(posix_file_system(), dir.path(), std::vector<int>(static_cast<size_t>(from)));
    ASSERT_EQ(world.error, "");
    for (const auto& report : world.snapshot(4)) EXPECT_EQ(report.error, "");
    const Found found = find_snapshots(dir.path(), 1);
    ASSERT_EQ(steps_of(found), std::vector<int64_t>{4}) << from;
    EXPECT_EQ(found.snapshots[0].whole.trainer_state, "{\"step\":4}");
    for (int to : {1, 2, 3, 5}) EXPECT_EQ(load_at(found.snapshots[0], to), "") << from << to;
  }
}

TEST(MemoryTier, TwoSlotsAlternate) {
  const TempDir dir;
  MemoryWorld world(posix_file_system(), dir.path(), {0, 0});
  for (int64_t step : {2, 4, 6, 8}) world.snapshot(step);
  const Found found = find_snapshots(dir.path(), 1);
  EXPECT_EQ(steps_of(found), (std::vector<int64_t>{8, 6}));
  for (const Snapshot& s : found.snapshots) EXPECT_EQ(load_at(s, 3), "");
}

// A save of the same step has copied the state: the snapshot reads that copy, and no live state.
TEST(MemoryTier, TheCopyOfASaveIsReadAndTheNextSaveWaitsForThat) {
  const TempDir dir;
  FaultyFileSystem held(posix_file_system());
  World saves(posix_file_system(), options_in(dir / "c"), odd_model(), 1);
  MemoryWorld snapshots(held, dir / "m", {0});
  Engine& engine = *saves.engines[0];
  MemoryTier& tier = *snapshots.tiers[0];
  saves.states[0]->fill(4);
  ASSERT_TRUE(engine.begin_save({.step = 4, .updates = 4}).value());
  held.set_plan({.op = Op::kWrite, .at_call = 2, .fault = Fault::kHold});  // of its first piece
  tier.begin(4, /*keep_step=*/-1, /*committed_step=*/-1, "{\"step\":4}", engine.lend_staged());
  tier.wait_read();
  engine.wait_read();
  saves.states[0]->fill(5);
  ASSERT_TRUE(drain(engine));
  ASSERT_TRUE(engine.begin_save({.step = 5, .updates = 5}).value());
  EXPECT_FALSE(engine.drain_for(std::chrono::milliseconds(50))) << "the copy is still being read";
  held.set_plan({});
  tier.drain();
  EXPECT_EQ(tier.take_reports().at(0).error, "");
  ASSERT_TRUE(drain(engine));
  for (const SaveReport& report : engine.take_reports()) EXPECT_TRUE(report.committed);
  const Found found = find_snapshots(dir / "m", 1);
  ASSERT_EQ(steps_of(found), std::vector<int64_t>{4});
  EXPECT_EQ(load_at(found.snapshots[0], 2), "");
}

// One rank's copy fails: the step that all have is never overwritten.
TEST(MemoryTier, TheStepThatAllHaveStaysAfterFailedCopies) {
  const TempDir dir;
  FaultyFileSystem disk(posix_file_system());
  MemoryWorld world(disk, dir.path(), {0, 0});
  world.snapshot(2);
  for (int64_t step : {4, 6, 8}) {
    disk.set_plan({.op = Op::kWrite, .at_call = 2 + step, .fault = Fault::kIoError});
    const auto reports = world.snapshot(step);
    EXPECT_NE(reports[0].error.empty(), reports[1].error.empty()) << "one of them fails";
    EXPECT_EQ(steps_of(find_snapshots(dir.path(), 1)), std::vector<int64_t>{2});
  }
  disk.set_plan({});
  world.snapshot(10);
  EXPECT_EQ(steps_of(find_snapshots(dir.path(), 1)), (std::vector<int64_t>{10, 2}));
}

// Every write of a snapshot fails once, in turn, whole or in its middle, and so do all after it.
TEST(MemoryTier, TornAtAnyWriteTheOneBeforeIsUsed) {
  for (Fault fault : {Fault::kIoError, Fault::kShortWrite}) {
    int64_t torn = 0;
    for (int64_t k = 1;; ++k) {
      const TempDir dir;
      FaultyFileSystem disk(posix_file_system());
      MemoryWorld world(disk, dir.path(), {0, 0});
      world.snapshot(2);
      world.snapshot(4);
      disk.set_plan({.op = Op::kWrite, .at_call = k, .fault = fault, .and_after = true});
      world.snapshot(6);
      const Found found = find_snapshots(dir.path(), 1);
      ASSERT_FALSE(found.snapshots.empty()) << k;
      EXPECT_EQ(load_at(found.snapshots[0], 3), "") << k;
      if (found.snapshots[0].whole.step == 6) break;
      EXPECT_EQ(found.snapshots[0].whole.step, 4) << k;
      ++torn;
    }
    EXPECT_GT(torn, 20);
  }
}

TEST(MemoryTier, DamageIsNamed) {
  const TempDir dir;
  MemoryWorld world(posix_file_system(), dir.path(), {0, 0});
  world.snapshot(2);
  world.snapshot(4);
  const auto path = slot_path(dir.path(), 0, 1, "own", 1);
  const auto header = read_slot(posix_file_system(), path, test_support::kRunId).value();
  // In turn: the magic, the committed step, the header's length, its first and a later byte.
  for (int64_t offset : {0, 16, 24, 48, 900}) {
    flip(path, offset);
    const Found found = find_snapshots(dir.path(), 1);
    ASSERT_EQ(found.problems.size(), 1u) << offset;
    EXPECT_NE(found.problems[0].find("rank_1.own.1"), std::string::npos);
    EXPECT_EQ(steps_of(found), std::vector<int64_t>{2}) << offset;
    flip(path, offset);
  }
  flip(path, header.data_offset + 5);
  const Found found = find_snapshots(dir.path(), 1);
  EXPECT_EQ(steps_of(found), (std::vector<int64_t>{4, 2})) << "data is looked at when it is read";
  EXPECT_NE(load_at(found.snapshots[0], 3).find("param/embed.weight"), std::string::npos);
  EXPECT_EQ(load_at(found.snapshots[1], 3), "");
}

TEST(MemoryTier, AnotherRunsSnapshotsAreNotSeen) {
  const TempDir dir;
  MemoryWorld world(posix_file_system(), dir.path(), {0});
  world.snapshot(2);
  EXPECT_TRUE(find_snapshots(dir.path(), 1, {}, test_support::kRunId + 1).snapshots.empty());
}

TEST(MemoryTier, NewerGenerationComesBeforeALaterStepOfAnOlderOne) {
  const TempDir dir;
  MemoryWorld older(posix_file_system(), dir.path(), {0, 0}, 1);
  older.snapshot(8);
  MemoryWorld newer(posix_file_system(), dir.path(), {0}, 2);
  newer.snapshot(6);
  EXPECT_EQ(steps_of(find_snapshots(dir.path(), 1)), (std::vector<int64_t>{6, 8}));
}

TEST(MemoryTier, TheDiskIsTheTruth) {
  const TempDir dir;
  MemoryWorld world(posix_file_system(), dir.path(), {0, 0}, 3);
  world.snapshot(8, /*committed_step=*/5);
  const auto steps = [&](DiskState disk) { return steps_of(find_snapshots(dir.path(), 1, disk)); };
  EXPECT_EQ(steps({.step = 5, .generation = 3, .newest_step = 5}), std::vector<int64_t>{8});
  EXPECT_EQ(steps({.step = 4, .generation = 2, .newest_step = 5}), std::vector<int64_t>{8})
      << "step 5 is there and damaged";
  EXPECT_EQ(steps({.step = 8, .generation = 3, .newest_step = 8}), std::vector<int64_t>{8})
      << "the same bits, sooner";
  EXPECT_TRUE(steps({.step = 9, .generation = 3, .newest_step = 9}).empty()) << "older";
  EXPECT_TRUE(steps({.step = 8, .generation = 4, .newest_step = 8}).empty()) << "another's step 8";
  EXPECT_TRUE(steps({.step = 6, .generation = 4, .newest_step = 6}).empty()) << "overtaken";
  EXPECT_TRUE(steps({.step = 4, .generation = 2, .newest_step = 4}).empty()) << "taken back";
  EXPECT_TRUE(steps({}).empty()) << "somebody removed the checkpoints";
}

TEST(MemoryTier, EveryPartMustBeThere) {
  const TempDir dir;
  MemoryWorld world(posix_file_system(), dir.path(), {0, 1});
  world.snapshot(2);
  world.snapshot(4);
  std::filesystem::remove(slot_path(dir.path(), 1, 1, "own", 1));
  const Found found = find_snapshots(dir.path(), 2);
  EXPECT_EQ(steps_of(found), std::vector<int64_t>{2});
  ASSERT_EQ(found.passed_over.size(), 1u);
  EXPECT_NE(found.passed_over[0].find("rank 1"), std::string::npos);
}

TEST(MemoryTier, AnotherModelIsRefused) {
  const TempDir dir;
  MemoryWorld world(posix_file_system(), dir.path(), {0});
  world.snapshot(2);
  auto state = test_support::state_of({{"scale", {2}}}, 0, 1);
  const auto reads = plan_reads(find_snapshots(dir.path(), 1).snapshots[0].whole, state.targets());
  ASSERT_FALSE(reads.ok());
  EXPECT_NE(reads.error().message.find("/param/scale"), std::string::npos);
}

TEST(Buddies, LeaveTheNodeWhereTheyCan) {
  EXPECT_TRUE(buddies({0}).empty());
  EXPECT_EQ(buddies({0, 0, 0}), (std::vector<int>{1, 2, 0})) << "one node: the next rank";
  EXPECT_EQ(buddies({0, 0, 1, 1}), (std::vector<int>{2, 3, 0, 1}));
  for (const std::vector<int>& nodes :
       {std::vector<int>{0, 1}, {0, 1, 0, 1}, {0, 1, 2}, {0, 0, 1, 2}, {2, 2, 1, 0, 1, 2}}) {
    const std::vector<int> buddy = buddies(nodes);
    EXPECT_EQ(std::set<int>(buddy.begin(), buddy.end()).size(), nodes.size());
    for (size_t r = 0; r < nodes.size(); ++r)
      EXPECT_NE(nodes[static_cast<size_t>(buddy[r])], nodes[r]);
  }
  const std::vector<int> uneven = buddies({0, 0, 0, 1});
  EXPECT_EQ(std::set<int>(uneven.begin(), uneven.end()).size(), 4u);
}

TEST(MemoryTier, BuddiesStandInForALostNode) {
  for (int lost : {0, 1}) {
    const TempDir dir;
    {
      MemoryWorld world(posix_file_system(), dir.path(), {0, 0, 1, 1}, 1, /*buddy=*/true);
      for (int64_t step : {2, 4, 6})
        for (const auto& report : world.snapshot(step))
          EXPECT_EQ(report.error + report.buddy_error, "");
    }
    std::filesystem::remove_all(dir / text("node_", lost));
    const Found found = find_snapshots(dir.path(), 2);
    EXPECT_EQ(steps_of(found), (std::vector<int64_t>{6, 4}));
    for (const Snapshot& s : found.snapshots)
      for (int to : {1, 3, 4}) EXPECT_EQ(load_at(s, to), "");
    size_t copies = 0;
    for (const auto& homes : found.snapshots[0].homes) copies += homes.front().buddy;
    EXPECT_EQ(copies, 2u) << "two parts come from buddies";
  }
}

// A rank whose own copy failed hands on a slot that says so.
TEST(MemoryTier, AnIncompleteSlotStaysIncompleteAtTheBuddy) {
  const TempDir dir;
  FaultyFileSystem disk(posix_file_system());
  MemoryWorld world(disk, dir.path(), {0, 1}, 1, true);
  world.snapshot(2);
  disk.set_plan({.op = Op::kWrite, .at_call = 5, .fault = Fault::kShortWrite});
  world.snapshot(4);
  const Found found = find_snapshots(dir.path(), 2);
  EXPECT_EQ(steps_of(found), std::vector<int64_t>{2});
  EXPECT_EQ(load_at(found.snapshots[0], 3), "");
}

TEST(MemoryTier, WhatDoesNotFitIsSaidWithEachSnapshot) {
  const TempDir dir;
  FaultyFileSystem disk(posix_file_system());
  disk.set_plan({.op = Op::kTruncate, .at_call = 2, .fault = Fault::kNoSpace});
  MemoryWorld world(disk, dir.path(), {0});
  for (const int64_t step : {2, 4}) {
    const std::string error = world.snapshot(step).at(0).error;
    EXPECT_NE(error.find("memory for two snapshots of "), std::string::npos) << error;
  }
  EXPECT_TRUE(find_snapshots(dir.path(), 1).snapshots.empty());
}

TEST(MemoryTier, NothingIsLeftOfAFinishedRun) {
  const TempDir dir;
  MemoryWorld world(posix_file_system(), dir.path(), {0, 0, 1}, 1, true);
  world.snapshot(2);
  for (auto& tier : world.tiers) tier->remove();
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(MemoryTier, OlderGenerationsAreRemovedAndLaterOnesAreNot) {
  const TempDir dir;
  for (int64_t generation : {1, 2, 3, 10})
    MemoryWorld(posix_file_system(), dir.path(), {0}, generation).snapshot(2);
  ASSERT_TRUE(remove_older_snapshots(posix_file_system(), dir / "node_0", 3, "g2-abc2").ok());
  EXPECT_EQ(posix_file_system().list(dir / "node_0").value(),
            (std::vector<std::string>{"g10-abc10", "g2-abc2", "g3-abc3"}));
  EXPECT_EQ(look(posix_file_system(), dir / "node_0", 1).value().last_generation, 10);
}

}  // namespace
}  // namespace lockstep::checkpoint
