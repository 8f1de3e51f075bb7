#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/load/selection.h"
#include "checkpoint/tools/diff.h"
#include "checkpoint/tools/reshard.h"
#include "checkpoint/tools/verify.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/newest_valid.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/world.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::Fault;
using lockstep::test_support::FaultyFileSystem;
using lockstep::test_support::Op;
using lockstep::test_support::TempDir;
using test_support::large_model;
using test_support::odd_model;
using test_support::options_in;
using test_support::RankState;
using test_support::state_of;
using test_support::World;
using testing::ElementsAre;
using testing::HasSubstr;
using Path = std::filesystem::path;

constexpr int64_t kDiffStep = 7;

// A committed checkpoint of `world_size` ranks; `change` may alter the state before it is saved.
Path saved(
    const Path& folder, int world_size, const std::vector<test_support::TensorSpec>& model,
    const std::function<void(World&)>& change = [](World&) {}) {
  World world(posix_file_system(), options_in(folder), model, world_size);
  for (auto& state : world.states) state->fill(kDiffStep);
  change(world);
  const auto reports =
      world.save({.step = kDiffStep, .updates = kDiffStep, .trainer_state = "{\"step\":7}"});
  EXPECT_TRUE(reports.at(0).committed) << reports.at(0).error;
  return reports.at(0).directory;
}

Result<Path> resharded(const Path& source, const Path& folder, int64_t world_size,
                       FileSystem& disk = posix_file_system()) {
  return reshard(disk, {source, folder, world_size, {}, 2, "abc123"}, test_support::kSilent);
}

CheckpointDiff diff_of(const Path& a, const Path& b) {
  auto diff = diff_checkpoints(posix_file_system(), a, b, 2, test_support::kSilent);
  EXPECT_TRUE(diff.ok()) << diff.error().message;
  return std::move(diff).value();
}

TEST(Window, CutsPiecesAtTheLimitInOrder) {
  const TensorPiece a{"a", Kind::kParam, {7}, 0, 7}, b{"b", Kind::kParam, {10}, 2, 6};
  const auto windows = cut_windows({a, b}, 4);
  ASSERT_EQ(windows.size(), 4u);
  std::vector<std::string> paths;
  int64_t elements = 0;
  for (const auto& window : windows)
    for (const TensorPiece& piece : window) {
      paths.push_back(text(piece.dataset_path(), "+", piece.length));
      elements += piece.length;
    }
  EXPECT_EQ(elements, 13);
  EXPECT_THAT(paths, ElementsAre("/param/a@0+4", "/param/a@4+3", "/param/b@2+1", "/param/b@3+4",
                                 "/param/b@7+1"));
}

TEST(Reshard, EveryElementGoesToOneRankAndTilesAreShared) {
  std::vector<ManifestTensor> tensors;
  for (const auto& tensor : large_model())
    tensors.push_back({tensor.name, tensor.shape, {{"param", ""}, {"adam_v", ""}}});
  for (const int64_t world_size : {1, 2, 3, 7, 8, 500}) {
    Manifest manifest;
    manifest.tensors = tensors;
    int64_t most = 0, least = std::numeric_limits<int64_t>::max();
    for (int64_t rank = 0; rank < world_size; ++rank) {
      manifest.files.push_back({});
      manifest.files.back().pieces = pieces_of_rank(tensors, rank, world_size);
      int64_t elements = 0;
      for (const TensorPiece& piece : manifest.files.back().pieces) {
        EXPECT_EQ(piece.flat_start % 4096, 0);
        elements += piece.length;
      }
      most = std::max(most, elements);
      least = std::min(least, elements);
    }
    const auto covered = check_coverage(manifest);
    EXPECT_TRUE(covered.ok()) << world_size << ": " << covered.error().message;
    if (world_size > 8) continue;
    EXPECT_LT(static_cast<double>(most), 1.5 * static_cast<double>(least)) << world_size;
  }
}

TEST(Reshard, AnyWorldSizeGivesTheSameStateThatLoadsAnywhere) {
  for (const int from : {1, 3, 8})
    for (const int to : {1, 2, 5, 8, 40}) {
      const TempDir dir;
      const Path source = saved(dir / "a", from, odd_model());
      const auto made = resharded(source, dir / "b", to);
      ASSERT_TRUE(made.ok()) << made.error().message;
      const CheckpointDiff diff = diff_of(source, made.value());
      EXPECT_TRUE(diff.equal());
      EXPECT_EQ(diff.equal_tensors, 18);
      const auto problems = verify(posix_file_system(), made.value(), 1);
      EXPECT_TRUE(problems.ok() && problems.value().empty());
      const int ranks = to % 3 + 1;
      for (int rank = 0; rank < ranks; ++rank) {
        RankState state = state_of(odd_model(), rank, ranks);
        const auto loaded =
            test_support::newest_valid(posix_file_system(), dir / "b", state.targets(), 1);
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        EXPECT_EQ(loaded.value().manifest.trainer_state, "{\"step\":7}");
        EXPECT_EQ(loaded.value().manifest.world_size, to);
        EXPECT_EQ(state.difference(kDiffStep), "") << from << " to " << to;
      }
      EXPECT_TRUE(posix_file_system().exists(made.value() / kIndexName));
      EXPECT_EQ(read_file(posix_file_system(), dir / "b" / kLatestName).value(),
                made.value().filename().string() + "\n");
    }
}

TEST(Reshard, ASecondCheckpointOfTheStepIsRefused) {
  const TempDir dir;
  const Path source = saved(dir / "a", 2, odd_model());
  const auto into_its_own = resharded(source, dir / "a", 1);
  ASSERT_FALSE(into_its_own.ok());
  EXPECT_EQ(into_its_own.error().code, Code::kConfig);
  EXPECT_THAT(into_its_own.error().message, HasSubstr("exists already"));
  ASSERT_TRUE(resharded(source, dir / "b", 1).ok());
  EXPECT_FALSE(resharded(source, dir / "b", 1).ok());
}

// Also when nothing can be removed: from the rename of the manifest on it is a whole one.
TEST(Reshard, WhatAFailureAtAnyCallLeavesIsNoCheckpointOrAWholeOne) {
  const TempDir dir;
  const Path source = saved(dir / "a", 2, odd_model());
  int64_t calls = 0, whole = 0;
  for (int64_t k = 1; calls == 0; ++k) {
    const Path folder = dir / text("b", k);
    FaultyFileSystem disk(
        posix_file_system(),
        {.op = Op::kAny, .at_call = k, .fault = Fault::kIoError, .and_after = true});
    const auto made = resharded(source, folder, 3, disk);
    if (disk.calls(Op::kAny) < k) calls = k;
    if (made.ok() || !posix_file_system().exists(folder)) continue;
    const auto entries = list_checkpoints(posix_file_system(), folder).value();
    for (const CatalogEntry& entry : entries) {
      if (!entry.committed) continue;
      ++whole;
      EXPECT_TRUE(verify(posix_file_system(), entry.directory, 1).value().empty()) << k;
    }
  }
  EXPECT_GT(calls, 50);
  EXPECT_LE(whole, 1);
}

TEST(Reshard, ADamagedSourceGivesNothing) {
  const TempDir dir;
  const Path source = saved(dir / "a", 1, large_model());
  std::string bytes = read_file(posix_file_system(), source / "rank_00000.h5").value();
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(publish_file(posix_file_system(), source / "rank_00000.h5", bytes).ok());
  const auto made = resharded(source, dir / "b", 2);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr("rank_00000.h5"));
  EXPECT_THAT(posix_file_system().list(dir / "b").value(), ElementsAre());
}

TEST(Diff, CountsElementsAndSortsBySize) {
  const TempDir dir;
  const Path a = saved(dir / "a", 2, odd_model());
  const Path b = saved(dir / "b", 3, odd_model(), [](World& world) {
    for (auto& state : world.states)
      for (size_t i = 0; i < state->pieces.size(); ++i) {
        const std::string key = state->pieces[i].tensor_key();
        if (key == "adam_m/cube") state->values[i].back() += 0.5f;  // one on each rank
        if (key == "param/embed.weight") state->values[i].front() += 2.0f;
        if (key == "adam_v/scale")
          state->values[i].front() = std::numeric_limits<float>::quiet_NaN();
      }
  });
  const CheckpointDiff diff = diff_of(a, b);
  EXPECT_FALSE(diff.equal());
  EXPECT_EQ(diff.equal_tensors, 15);
  ASSERT_EQ(diff.tensors.size(), 3u);
  EXPECT_EQ(diff.tensors[0].key, "adam_v/scale");
  EXPECT_TRUE(std::isinf(diff.tensors[0].max_abs));
  EXPECT_EQ(diff.tensors[1].key, "param/embed.weight");
  EXPECT_NEAR(diff.tensors[1].max_abs, 2, 1e-6);
  EXPECT_EQ(diff.tensors[1].differing, 3);
  EXPECT_EQ(diff.tensors[1].elements, 263 * 33);
  EXPECT_EQ(diff.tensors[2].key, "adam_m/cube");
  EXPECT_NEAR(diff.tensors[2].max_abs, 0.5, 1e-6);
  EXPECT_TRUE(diff.state.empty());
  EXPECT_FALSE(diff.layout.empty());
}

TEST(Diff, MinusZeroIsAnotherBitPattern) {
  const TempDir dir;
  const auto zero = [](float value) {
    return [value](World& world) { world.states[0]->values[0][0] = value; };
  };
  const CheckpointDiff diff = diff_of(saved(dir / "a", 1, odd_model(), zero(0.0f)),
                                      saved(dir / "b", 1, odd_model(), zero(-0.0f)));
  ASSERT_EQ(diff.tensors.size(), 1u);
  EXPECT_EQ(diff.tensors[0].differing, 1);
  EXPECT_EQ(diff.tensors[0].max_abs, 0);
}

TEST(Diff, NamesShapesAndTrainerState) {
  const TempDir dir;
  auto model = odd_model();
  model[0].shape = {33, 263};
  model[2].name = "layers.1.norm.weight";
  const Path a = saved(dir / "a", 1, odd_model());
  World world(posix_file_system(), options_in(dir / "b"), model, 1);
  const Path b = world.save(8).at(0).directory;
  const CheckpointDiff diff = diff_of(a, b);
  EXPECT_THAT(diff.only_a, ElementsAre("adam_m/layers.0.norm.weight", "adam_v/layers.0.norm.weight",
                                       "param/layers.0.norm.weight"));
  EXPECT_EQ(diff.only_b.size(), 3u);
  ASSERT_EQ(diff.shapes.size(), 3u);
  EXPECT_EQ(diff.shapes[0].key, "adam_m/embed.weight");
  EXPECT_THAT(diff.shapes[0].b, ElementsAre(33, 263));
  ASSERT_EQ(diff.state.size(), 2u);
  EXPECT_EQ(diff.state[0].name, "step");
  EXPECT_EQ(diff.state[1].name, "trainer_state.step");
  EXPECT_EQ(diff.state[1].b, "8");
}

TEST(Selection, PatternsMatchWholeNames) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("layers.*.wq", "layers.12.attention.wq"));
  EXPECT_TRUE(matches("*wq*wq", "wq.wq.wq"));
  EXPECT_TRUE(matches("a**b*", "ab"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches("head", "head.weight"));
  EXPECT_FALSE(matches("*.bias", "layers.bias.x"));
  EXPECT_FALSE(matches("layers.?", "layers.1"));
}

TEST(Selection, LeavesOutTheOptimizerAndWhatIsExcluded) {
  RankState state = state_of(odd_model(), 0, 1);
  const auto names_of = [&](const LoadSelection& selection) {
    std::vector<std::string> keys;
    for (const TensorPiece& piece : state.pieces)
      if (selects(selection, piece)) keys.push_back(piece.tensor_key());
    return keys;
  };
  EXPECT_EQ(names_of({false, {}}).size(), 18u);
  EXPECT_EQ(names_of({true, {}}).size(), 6u);
  EXPECT_THAT(names_of({true, {"layers.*", "*e*"}}), ElementsAre());
  EXPECT_THAT(names_of({true, {"layers.*", "one", "embed.*"}}),
              ElementsAre("param/scale", "param/cube"));
  std::set<std::string> names;
  for (const auto& tensor : odd_model()) names.insert(tensor.name);
  EXPECT_TRUE(check_selection({true, {"layers.*"}}, names).ok());
  const auto unused = check_selection({true, {"layer.*"}}, names);
  ASSERT_FALSE(unused.ok());
  EXPECT_THAT(unused.error().message, HasSubstr("\"layer.*\" matches no tensor"));
  EXPECT_FALSE(check_selection({true, {"*"}}, names).ok());
}

TEST(Selection, ACheckpointOfAnotherModelIsRefusedWithADiff) {
  Manifest manifest;
  for (int i = 10; i < 25; ++i) manifest.tensors.push_back({text("old.", i), {2}, {{"param", ""}}});
  manifest.tensors.push_back({"same", {4, 2}, {{"param", ""}}});
  std::vector<TensorPiece> wanted{{"same", Kind::kParam, {2, 4}, 0, 8},
                                  {"same", Kind::kAdamM, {4, 2}, 0, 8}};
  for (int i = 10; i < 25; ++i) wanted.push_back({text("new.", i), Kind::kParam, {2}, 0, 2});
  std::set<std::string> names;
  for (const TensorPiece& piece : wanted) names.insert(piece.name);
  const auto refused = check_match(manifest, wanted, names);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kConfig);
  EXPECT_THAT(refused.error().message, HasSubstr("16 missing from the checkpoint: adam_m/same"));
  EXPECT_THAT(refused.error().message, HasSubstr("param/new.18, …"));
  EXPECT_THAT(refused.error().message, HasSubstr("15 only in the checkpoint: old.10"));
  EXPECT_THAT(
      refused.error().message,
      HasSubstr("1 with another shape: param/same: the model has [2, 4], the checkpoint [4, 2]"));
  const TensorPiece same{"same", Kind::kParam, {4, 2}, 0, 8};
  EXPECT_TRUE(check_match(manifest, {same}, {}).ok());
  EXPECT_TRUE(check_match(manifest, {same}, {"same"}).ok());
  EXPECT_THAT(check_match(manifest, {same}, {"same"}, Surplus::kRefused).error().message,
              HasSubstr("15 only in the checkpoint: old.10"));
}

}  // namespace
}  // namespace lockstep::checkpoint
