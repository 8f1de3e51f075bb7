// A state whose moments are bf16, through all that handles checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/save/vote.h"
#include "checkpoint/snapshot/memory_inventory.h"
#include "checkpoint/tools/diff.h"
#include "checkpoint/tools/export.h"
#include "checkpoint/tools/import.h"
#include "checkpoint/tools/reshard.h"
#include "checkpoint/tools/verify.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/part_of.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::test_support::TempDir;
using test_support::large_model;
using test_support::options_in;
using test_support::RankState;
using test_support::state_of;
using test_support::World;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Path = std::filesystem::path;

constexpr int64_t kBf16Step = 5;

SaveReport saved(const Path& folder, Dtype moments, Codec codec = Codec::kZstd, int ranks = 3) {
  EngineOptions options = options_in(folder);
  options.codec = codec;
  World world(posix_file_system(), options, large_model(), ranks, moments);
  EXPECT_EQ(world.error, "");
  SaveReport report = world.save(kBf16Step).at(0);
  EXPECT_TRUE(report.committed) << report.error;
  return report;
}

Result<LoadStatistics> load(const Path& directory, RankState& state) {
  LOCKSTEP_TRY(const Manifest manifest, read_manifest(posix_file_system(), directory));
  return load_pieces(posix_file_system(), directory, manifest, state.targets(), 2);
}

TEST(Bf16State, ComesBackAtAnyWorldSizeWithAnyCodec) {
  for (const Codec codec : {Codec::kZstd, Codec::kNone, Codec::kGzip}) {
    const TempDir dir;
    const Path directory = saved(dir / "a", Dtype::kBf16, codec).directory;
    for (const int world_size : {1, 2, 5})
      for (int rank = 0; rank < world_size; ++rank) {
        RankState state = state_of(large_model(), rank, world_size, Dtype::kBf16);
        const auto loaded = load(directory, state);
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        EXPECT_EQ(state.difference(kBf16Step), "") << "rank " << rank << " of " << world_size;
      }
    EXPECT_THAT(verify(posix_file_system(), directory, 2).value(), IsEmpty());
  }
}

TEST(Bf16State, TakesEightBytesOfAParameterInPlaceOfTwelve) {
  const TempDir dir;
  const SaveReport wide = saved(dir / "f", Dtype::kF32, Codec::kNone, 1);
  const SaveReport narrow = saved(dir / "b", Dtype::kBf16, Codec::kNone, 1);
  EXPECT_EQ(2 * wide.raw_bytes, 3 * narrow.raw_bytes);
  EXPECT_LT(static_cast<double>(narrow.stored_bytes),
            0.67 * static_cast<double>(wide.stored_bytes));
}

// A version that knows no bf16 must not take it for fp32.
TEST(Bf16State, TheManifestSaysSoAndHasAnotherVersion) {
  const TempDir dir;
  const auto text_of = [&](Dtype moments) {
    const Path folder = dir / dtype_word(moments);
    return read_file(posix_file_system(), saved(folder, moments).directory / kManifestName).value();
  };
  const auto wide = nlohmann::json::parse(text_of(Dtype::kF32));
  EXPECT_EQ(wide["format_version"], 1);
  EXPECT_FALSE(wide["tensors"][0].contains("dtype"));
  const std::string contents = text_of(Dtype::kBf16);
  const auto narrow = nlohmann::json::parse(contents);
  EXPECT_EQ(narrow["format_version"], 2);
  EXPECT_EQ(narrow["tensors"][0]["dtype"].dump(), R"({"adam_m":"bfloat16","adam_v":"bfloat16"})");
  const Manifest read = parse_manifest(contents).value();
  EXPECT_EQ(read.tensors[0].dtype_of(Kind::kAdamM), Dtype::kBf16);
  EXPECT_EQ(read.tensors[0].dtype_of(Kind::kParam), Dtype::kF32);
  EXPECT_EQ(manifest_text(read), contents);
}

TEST(Bf16State, AnotherTypeThanTheRunsIsNamed) {
  const TempDir dir;
  const Path narrow = saved(dir / "b", Dtype::kBf16).directory;
  const Path wide = saved(dir / "f", Dtype::kF32).directory;
  for (const auto& [directory, dtype] : {std::pair(narrow, Dtype::kF32), {wide, Dtype::kBf16}}) {
    RankState state = state_of(large_model(), 0, 1, dtype);
    const auto loaded = load(directory, state);
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, Code::kConfig);
    EXPECT_THAT(
        loaded.error().message,
        HasSubstr("14 with another number type (optimizer.state_dtype): adam_m/cube: the run"));
  }
}

TEST(Bf16State, ADtypeThatIsNoneOfOursIsCorrupt) {
  for (const char* kind : {"param", "adam_m"}) {
    Manifest part = test_support::part_of(0, 0, 12);
    part.tensors[0].dtypes[kind] = kind == std::string("param") ? Dtype::kF16 : Dtype::kBf16;
    const auto parsed = parse_manifest(manifest_text(part), Coverage::kPart);
    ASSERT_FALSE(parsed.ok()) << kind;
    EXPECT_EQ(parsed.error().code, Code::kCorrupt);
    EXPECT_THAT(parsed.error().message, HasSubstr("unknown dtype"));
  }
}

TEST(Bf16State, RanksMustAgreeOnIt) {
  Manifest a = test_support::part_of(0, 0, 5), b = test_support::part_of(1, 5, 7);
  b.tensors[0].dtypes["param"] = Dtype::kBf16;
  const auto merged = merge_votes({{0, "", a}, {1, "", b}});
  ASSERT_FALSE(merged.ok());
  EXPECT_EQ(merged.error().code, Code::kBug);
  EXPECT_THAT(merged.error().message, HasSubstr("param/w is bfloat16 on this rank"));
  a.tensors[0].dtypes["param"] = Dtype::kBf16;
  EXPECT_EQ(merge_votes({{0, "", a}, {1, "", b}}).value().format_version, 2);
}

TEST(Bf16State, ReshardsAndComparesEqual) {
  const TempDir dir;
  const Path narrow = saved(dir / "b", Dtype::kBf16).directory;
  const auto made = reshard(posix_file_system(), {narrow, dir / "r", 4, Codec::kGzip, 2, "abc123"},
                            test_support::kSilent);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const auto same =
      diff_checkpoints(posix_file_system(), narrow, made.value(), 2, test_support::kSilent);
  EXPECT_TRUE(same.value().equal());
  EXPECT_EQ(same.value().equal_tensors, 21);
  const Path wide = saved(dir / "f", Dtype::kF32).directory;
  const auto other =
      diff_checkpoints(posix_file_system(), narrow, wide, 2, test_support::kSilent).value();
  EXPECT_FALSE(other.equal());
  EXPECT_EQ(other.equal_tensors, 7);
  ASSERT_EQ(other.dtypes.size(), 14u);
  EXPECT_EQ(other.dtypes[0].key, "adam_m/cube");
  EXPECT_EQ(other.dtypes[0].a, Dtype::kBf16);
}

TEST(Bf16State, DiffReadsItsElements) {
  const TempDir dir;
  const Path first = saved(dir / "a", Dtype::kBf16).directory;
  World world(posix_file_system(), options_in(dir / "b"), large_model(), 2, Dtype::kBf16);
  for (auto& state : world.states) state->fill(kBf16Step);
  for (size_t i = 0; i < world.states[0]->pieces.size(); ++i)
    if (world.states[0]->pieces[i].tensor_key() == "adam_v/cube")
      world.states[0]->halves[i][3] = 0x3f80;  // 1
  const auto second =
      world.save({.step = kBf16Step, .updates = kBf16Step, .trainer_state = "{\"step\":5}"}).at(0);
  const auto diff =
      diff_checkpoints(posix_file_system(), first, second.directory, 2, test_support::kSilent);
  ASSERT_TRUE(diff.ok()) << diff.error().message;
  ASSERT_EQ(diff.value().tensors.size(), 1u);
  EXPECT_EQ(diff.value().tensors[0].key, "adam_v/cube");
  EXPECT_EQ(diff.value().tensors[0].differing, 1);
  EXPECT_NEAR(diff.value().tensors[0].max_abs, 1, 0.021);
}

// As fp32 exactly, as bf16 bit for bit; what comes back in is fp32.
TEST(Bf16State, ExportsAndImports) {
  const TempDir dir;
  ExportOptions options;
  options.source = saved(dir / "a", Dtype::kBf16).directory;
  options.kinds = {Kind::kParam, Kind::kAdamM, Kind::kAdamV};
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    options.dtype = dtype;
    options.folder = dir / (std::string("out_") + dtype_word(dtype));
    const auto files = export_safetensors(posix_file_system(), options, test_support::kSilent);
    ASSERT_TRUE(files.ok()) << files.error().message;
    ImportOptions back;
    back.source = options.folder;
    back.folder = dir / (std::string("in_") + dtype_word(dtype));
    back.nonce = "abc123";
    const auto imported = import_safetensors(posix_file_system(), back, test_support::kSilent);
    ASSERT_TRUE(imported.ok()) << imported.error().message;
    RankState state = state_of(large_model(), 0, 1);
    const auto loaded = load(imported.value(), state);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    for (size_t i = 0; i < state.pieces.size(); ++i)
      for (int64_t e = 0; e < state.pieces[i].length; ++e) {
        const bool moment = state.pieces[i].kind != Kind::kParam;
        const float value = test_support::value_at(state.pieces[i].tensor_key(), kBf16Step, e);
        const float want =
            moment || dtype == Dtype::kBf16 ? bf16_to_float(float_to_bf16(value)) : value;
        ASSERT_EQ(state.values[i][static_cast<size_t>(e)], want) << state.pieces[i].tensor_key();
      }
  }
}

// A snapshot's pieces lie one after the other, each in its own size.
TEST(Bf16State, ReadsOfASnapshotGoByTheSizeOfItsElements) {
  Manifest whole = test_support::part_of(0, 0, 12);
  const TensorPiece m{"w", Kind::kAdamM, {3, 4}, 0, 12, Dtype::kBf16};
  const TensorPiece v{"w", Kind::kAdamV, {3, 4}, 0, 12, Dtype::kBf16};
  whole.files[0].pieces.push_back(m);
  whole.files[0].pieces.push_back(v);
  std::vector<std::byte> bytes(10);
  TensorPiece wanted = v;
  wanted.flat_start = 4;
  wanted.length = 5;
  const auto reads = plan_reads(whole, {{wanted, bytes}});
  ASSERT_TRUE(reads.ok()) << reads.error().message;
  ASSERT_EQ(reads.value().size(), 1u);
  EXPECT_EQ(reads.value()[0].offset, 12 * 4 + 12 * 2 + 4 * 2);
  EXPECT_EQ(reads.value()[0].to.size(), 10u);
  wanted.dtype = Dtype::kF32;
  EXPECT_FALSE(plan_reads(whole, {{wanted, bytes}}).ok());
}

}  // namespace
}  // namespace lockstep::checkpoint
