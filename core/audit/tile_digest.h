// A digest of elements that are cut into tiles: the sum over the tiles, modulo 2^64, of a hash of
// each (XXH3, seeded with its place). So ranges that begin at tiles add up, in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::core {

// `seed`: that of the first tile; the tile at element i has seed + i.
uint64_t digest_of_tiles(std::span<const std::byte> elements, size_t element_bytes, uint64_t seed);

}  // namespace lockstep::core
