// Digests of elements that are cut into tiles: the sum over the tiles, modulo 2^64, of a hash of
// each (XXH3, seeded with its place). So runs that begin at tiles add up, in any order; and the
// same bits have the same digest on every device. No Torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::core {

// `seed`: that of the first tile; the tile at element i has seed + i.
uint64_t digest_of_tiles(std::span<const std::byte> elements, size_t element_bytes, uint64_t seed);

// What has a digest of its own among the elements of a tensor.
struct DigestRun {
  int64_t first, length;  // elements; it begins at a tile
  uint64_t seed;          // of its first tile
};

// sums_out[i] = digest_of_tiles(run i of `elements`), on memory of the device; `elements` are
// aligned to 16 bytes.
void digest_runs_on_cuda(const std::byte* elements, size_t element_bytes,
                         std::span<const DigestRun> runs, uint64_t* sums_out);

}  // namespace lockstep::core
