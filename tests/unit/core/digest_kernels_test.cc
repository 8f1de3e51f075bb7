#include "core/kernels/digest_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "layout/model_spec.h"

namespace lockstep::core {
namespace {

constexpr size_t kTile = layout::kTileElements;

std::vector<uint16_t> elements(size_t count) {
  std::vector<uint16_t> all(count);
  for (size_t i = 0; i < count; ++i) all[i] = static_cast<uint16_t>(i * 40503u >> 3);
  return all;
}

uint64_t digest(std::span<const uint16_t> part, uint64_t seed) {
  return digest_of_tiles(std::as_bytes(part), sizeof(uint16_t), seed);
}

TEST(TileDigest, PartsThatBeginAtTilesAddUp) {
  const std::vector<uint16_t> all = elements(3 * kTile + 17);
  const std::span<const uint16_t> span(all);
  for (size_t cut = 0; cut <= 3; ++cut)
    EXPECT_EQ(
        digest(span.first(cut * kTile), 5) + digest(span.subspan(cut * kTile), 5 + cut * kTile),
        digest(span, 5));
  EXPECT_EQ(digest({}, 5), 0u);
}

TEST(TileDigest, EveryBitCountsAndSoDoesThePlaceOfATile) {
  std::vector<uint16_t> all = elements(kTile + 3);
  std::set<uint64_t> seen{digest(all, 1), digest(all, 2)};
  for (size_t element = 0; element < all.size(); element += 97)
    for (int bit = 0; bit < 16; bit += 5) {
      all[element] ^= static_cast<uint16_t>(1u << bit);
      EXPECT_TRUE(seen.insert(digest(all, 1)).second) << element << ", " << bit;
      all[element] ^= static_cast<uint16_t>(1u << bit);
    }
  all.resize(2 * kTile);
  const uint64_t before = digest(all, 1);
  std::rotate(all.begin(), all.begin() + kTile, all.end());
  EXPECT_NE(digest(all, 1), before);
}

}  // namespace
}  // namespace lockstep::core
