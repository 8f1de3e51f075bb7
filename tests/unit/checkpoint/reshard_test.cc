// A checkpoint of any world size is read at any other, and little more than what is wanted.
#include "checkpoint/load/loader.h"
#include "checkpoint/shard_file/chunk_table.h"
#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint {
namespace {

constexpr int kWorldSizes[] = {1, 2, 3, 4, 5, 7, 8};

// What a rank may read: what it wants, and at each of the two ends of each overlap of a target with
// a piece less than a chunk. A piece's last chunk may be padded; that is within its end.
int64_t allowed_bytes(const Manifest& manifest, const RankState& state) {
  int64_t bytes = 0;
  for (const ManifestFile& file : manifest.files)
    for (const TensorPiece& piece : file.pieces)
      for (const TensorPiece& target : state.pieces) {
        if (piece.tensor_key() != target.tensor_key()) continue;
        const int64_t first = std::max(piece.flat_start, target.flat_start);
        const int64_t last =
            std::min(piece.flat_start + piece.length, target.flat_start + target.length);
        if (first >= last) continue;
        const int64_t chunk = chunk_elements_of(piece.length, manifest.chunking);
        const int64_t ends = (first > piece.flat_start) + 1;  // a piece's start is a chunk's
        const int64_t chunks = (last - first) / chunk + ends + 1;
        bytes += 4 * (last - first) + ends * 4 * (chunk - 1) + 4 * chunks;  // fletcher32
      }
  return bytes;
}

class ReshardOf : public testing::TestWithParam<int> {};  // so many ranks share a file
INSTANTIATE_TEST_SUITE_P(RanksPerFile, ReshardOf, testing::Values(1, 4));

TEST_P(ReshardOf, AnyWorldSizeToAnyOtherReadingLittleMore) {
  const auto model = large_model();
  for (int from : kWorldSizes) {
    const TempDir dir;
    auto options = options_in(dir / "c");
    options.ranks_per_file = GetParam();
    options.codec = Codec::kNone;  // stored bytes are raw bytes, so what is read can be compared
    World world(disk(), options, model, from);
    ASSERT_EQ(world.error, "");
    const auto reports = world.save(from);
    ASSERT_TRUE(reports[0].committed) << reports[0].error;
    const Manifest manifest = read_manifest(disk(), reports[0].directory).value();
    EXPECT_EQ(static_cast<int>(manifest.files.size()), (from + GetParam() - 1) / GetParam());
    for (int to : kWorldSizes) {
      Fingerprints whole;
      for (int rank = 0; rank < to; ++rank) {
        RankState state = state_of(model, rank, to);
        const auto loaded = load_pieces(disk(), reports[0].directory, manifest, state.targets(), 1);
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        ASSERT_EQ(state.difference(from), "") << from << " -> " << to << " rank " << rank;
        EXPECT_GE(loaded.value().read_bytes, loaded.value().wanted_bytes);
        EXPECT_LE(loaded.value().read_bytes, allowed_bytes(manifest, state))
            << from << " -> " << to << " rank " << rank;
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
  World world(disk(), options_in(dir / "c"), large_model(), 1);
  const auto directory = world.save(1)[0].directory;
  const Manifest manifest = read_manifest(disk(), directory).value();
  std::vector<float> some(10);
  const TensorPiece piece{"mlp.weight", Kind::kParam, {1031, 607}, 300000, 10};
  const auto loaded = load_pieces(disk(), directory, manifest,
                                  {{piece, std::as_writable_bytes(std::span(some))}}, 2);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded.value().wanted_bytes, 40);
  EXPECT_LT(loaded.value().read_bytes, (1 << 20) + 4);
  EXPECT_EQ(some[9], test_support::value_at("param/mlp.weight", 1, 300009));
}

TEST(Load, NamesAndShapesThatDoNotMatchAreConfigErrorsWithBothSides) {
  const TempDir dir;
  World world(disk(), options_in(dir / "c"), odd_model(), 1);
  world.save(1);
  auto model = odd_model();
  model[0].shape = {264, 33};
  model[1].name = "layers.0.wx.weight";
  RankState state = state_of(model, 0, 1);
  const auto loaded = newest_valid(disk(), dir / "c", state.targets(), 1);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kConfig);
  EXPECT_THAT(loaded.error().message, HasSubstr("param/embed.weight: the model has [264, 33], "
                                                "the checkpoint [263, 33]"));
  EXPECT_THAT(loaded.error().message, HasSubstr("3 with another shape"));
}

}  // namespace
}  // namespace lockstep::checkpoint
