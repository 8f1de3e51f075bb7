// Checkpoints written once and kept for ever: every later version reads them, bit for bit.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "checkpoint/load/loader.h"
#include "checkpoint/shard_file/hdf5_call.h"
#include "checkpoint/tools/verify.h"
#include "tests/golden/golden_model.h"

namespace lockstep::checkpoint {
namespace {

// Of a set "checkpoint_v<version>…".
int64_t version_of(const std::filesystem::path& folder) {
  return folder.filename().string().at(std::string_view("checkpoint_v").size()) - '0';
}

// As rank `rank` of `world_size` loads it.
void expect_loads(const std::filesystem::path& directory, const char* codec, int rank,
                  int world_size) {
  auto state = test_support::state_of(golden::model(codec), rank, world_size);
  const auto for_rank = read_manifest_for(posix_file_system(), directory, state.targets());
  ASSERT_TRUE(for_rank.ok()) << for_rank.error().message;
  const auto loaded =
      load_pieces(posix_file_system(), directory, for_rank.value(), state.targets(), 2);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  int64_t differing = 0;
  golden::for_each_element(state, [&](float element, float value) {
    differing += std::bit_cast<uint32_t>(element) != std::bit_cast<uint32_t>(value);
  });
  EXPECT_EQ(differing, 0) << codec << " rank " << rank << " of " << world_size;
}

void expect_whole(const std::filesystem::path& folder, const char* codec) {
  const auto entries = list_checkpoints(posix_file_system(), folder / codec);
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  ASSERT_EQ(entries.value().size(), 1u);
  const auto& directory = entries.value().front().directory;
  ASSERT_TRUE(entries.value().front().committed) << entries.value().front().problem;
  const Manifest manifest = read_manifest(posix_file_system(), directory).value();
  EXPECT_EQ(manifest.format_version, version_of(folder));
  EXPECT_EQ(manifest.step, golden::kStep);
  EXPECT_EQ(manifest.codec, codec);
  EXPECT_EQ(manifest.trainer_state, "{\"step\":12}");
  const auto problems = verify(posix_file_system(), directory, 2);
  ASSERT_TRUE(problems.ok()) << problems.error().message;
  for (const VerifyProblem& problem : problems.value())
    ADD_FAILURE() << problem.where << ": " << problem.what;
  for (int rank = 0; rank < 3; ++rank)  // at a world size that did not write it
    expect_loads(directory, codec, rank, 3);
}

// Calls check(folder of a set, codec) for all that are kept, of this version or of any.
void for_each_set(const std::string& version,
                  void (*check)(const std::filesystem::path&, const char*)) {
  const char* const source = ::getenv("LOCKSTEP_SOURCE_DIR");
  ASSERT_NE(source, nullptr) << "run by ctest";
  const auto folder = std::filesystem::path(source) / "tests/golden";
  const auto names = posix_file_system().list(folder).value();
  int64_t sets = 0;
  for (const std::string& name : names) {
    if (!name.starts_with("checkpoint_v" + version)) continue;
    ++sets;
    for (const std::string& codec : posix_file_system().list(folder / name).value())
      check(folder / name, codec.c_str());
  }
  EXPECT_GE(sets, 1);
}

TEST(Golden, CheckpointsOfFormatVersion1AreReadBitForBit) { for_each_set("1", expect_whole); }
TEST(Golden, CheckpointsOfFormatVersion3AreReadBitForBit) { for_each_set("3", expect_whole); }

std::filesystem::path directory_of(const char* set) {
  const auto folder = std::filesystem::path(::getenv("LOCKSTEP_SOURCE_DIR")) / "tests/golden";
  return list_checkpoints(posix_file_system(), folder / set / "zstd").value().front().directory;
}

TEST(Golden, AFileOfFourRanksHasWhatOneOfARankHas) {
  const auto shared = directory_of("checkpoint_v1_shared");
  const Manifest four = read_manifest(posix_file_system(), shared).value(),
                 own = read_manifest(posix_file_system(), directory_of("checkpoint_v1")).value();
  ASSERT_EQ(four.files.size(), 1u);
  EXPECT_EQ(four.world_size, golden::kRanksOfAFile);
  ASSERT_EQ(four.tensors.size(), own.tensors.size());
  for (size_t i = 0; i < own.tensors.size(); ++i) {
    EXPECT_EQ(four.tensors[i].name, own.tensors[i].name);
    EXPECT_EQ(four.tensors[i].fingerprint, own.tensors[i].fingerprint);
  }
  for (const int world_size : {1, 2, 3, 4, 5, 7, 8})
    for (int rank = 0; rank < world_size; ++rank) expect_loads(shared, "zstd", rank, world_size);
}

// Every element of every tensor, through the index, the rank files and their filters.
void expect_hdf5_reads(const std::filesystem::path& folder, const char* codec) {
  const auto directory =
      list_checkpoints(posix_file_system(), folder / codec).value().front().directory;
  const Hdf5Lock lock;
  ASSERT_TRUE(register_zstd_filter().ok());
  const Hdf5Id index(H5Fopen((directory / "index.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT),
                     &H5Fclose);
  ASSERT_TRUE(index) << directory;
  auto state = test_support::state_of(golden::model(codec), 0, 1);
  for (size_t i = 0; i < state.pieces.size(); ++i) {
    const std::string key = state.pieces[i].tensor_key();
    const Hdf5Id dataset(H5Dopen2(index.get(), key.c_str(), H5P_DEFAULT), &H5Dclose);
    ASSERT_TRUE(dataset) << directory << " " << key;
    ASSERT_GE(H5Dread(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                      state.values[i].data()),
              0)
        << directory << " " << hdf5_error(key).message;
  }
  int64_t differing = 0;
  golden::for_each_element(state, [&](float element, float value) {
    differing += std::bit_cast<uint32_t>(element) != std::bit_cast<uint32_t>(value);
  });
  EXPECT_EQ(differing, 0) << directory;
}

// Sets written through HDF5 1.10 and through 1.14, by whichever of them is linked.
TEST(Golden, TheLinkedHdf5ReadsThemBitForBit) { for_each_set("1", expect_hdf5_reads); }

}  // namespace
}  // namespace lockstep::checkpoint
