// Who owns which tiles of a unit. Pure arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model_spec/model_spec.h"

namespace lockstep::core {

// A unit's parameters lie one after the other, each starting at a tile. Rank r owns the tiles
// [r * tiles_per_rank, (r + 1) * tiles_per_rank): the last ranks may own fewer real tiles, or none.
struct ShardLayout {
  int64_t tiles = 0;           // of the unit
  int64_t tiles_per_rank = 0;  // ceil(tiles / W)
  int world_size = 1;

  static ShardLayout create(int64_t unit_tiles, int world_size) {
    return {unit_tiles, (unit_tiles + world_size - 1) / world_size, world_size};
  }
  int64_t first_tile(int rank) const { return std::min(tiles, rank * tiles_per_rank); }
  int64_t tile_count(int rank) const {
    return std::clamp<int64_t>(tiles - rank * tiles_per_rank, 0, tiles_per_rank);
  }
  int64_t shard_elements() const { return tiles_per_rank * model_spec::kTileElements; }
  int64_t padded_elements() const { return shard_elements() * world_size; }
};

// A run of one parameter inside a range of a unit's tiles.
struct Segment {
  int param = 0;             // index in the unit
  int64_t flat_start = 0;    // first element, in the parameter's own row-major order
  int64_t length = 0;        // real elements, no padding
  int64_t range_offset = 0;  // where it starts, in elements from the range's first tile
  int64_t tiles = 0;         // tiles covered
};
// The segments of tiles [first_tile, first_tile + tile_count) of `unit`, in order; none is empty.
std::vector<Segment> segments_of(const model_spec::UnitSpec& unit, int64_t first_tile,
                                 int64_t tile_count);

}  // namespace lockstep::core
