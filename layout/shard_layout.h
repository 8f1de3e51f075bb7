// Who owns which tiles of a unit. Pure arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "layout/model_spec.h"

namespace lockstep::layout {

// A unit's parameters lie one after the other, each starting at a tile. The tiles are cut into W
// equal parts (the last ones may hold fewer real tiles, or none), each owned by one rank. Groups of
// S consecutive ranks share one copy of the state: the l-th of a group holds the parts
// [l * R, l * R + R), with R = W / S copies, and owns the one of its group's number.
//
//   W = 4, S = 2    parts      0    1    2    3
//                   held by   0,2  0,2  1,3  1,3
//                   owned by   0    2    1    3
struct ShardLayout {
  int64_t tiles = 0;           // of the unit
  int64_t tiles_per_rank = 0;  // ceil(tiles / W)
  int world_size = 1;
  int shard_size = 1;  // S

  static ShardLayout create(int64_t unit_tiles, int world_size, int shard_size) {
    return {unit_tiles, (unit_tiles + world_size - 1) / world_size, world_size, shard_size};
  }
  int copies() const { return world_size / shard_size; }
  int part_of(int rank) const { return rank % shard_size * copies() + rank / shard_size; }
  int owner_of(int part) const { return part % copies() * shard_size + part / copies(); }
  // Of the part that `rank` owns.
  int64_t first_tile(int rank) const { return std::min(tiles, part_of(rank) * tiles_per_rank); }
  int64_t tile_count(int rank) const {
    return std::clamp<int64_t>(tiles - part_of(rank) * tiles_per_rank, 0, tiles_per_rank);
  }
  // Of all parts that it holds.
  int64_t first_held_tile(int rank) const {
    return std::min(tiles, rank % shard_size * held_tiles());
  }
  int64_t held_tile_count(int rank) const {
    return std::clamp<int64_t>(tiles - rank % shard_size * held_tiles(), 0, held_tiles());
  }
  int64_t owned_elements() const { return tiles_per_rank * kTileElements; }
  int64_t held_elements() const { return owned_elements() * copies(); }
  int64_t padded_elements() const { return owned_elements() * world_size; }

 private:
  int64_t held_tiles() const { return tiles_per_rank * copies(); }
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
std::vector<Segment> segments_of(const UnitSpec& unit, int64_t first_tile, int64_t tile_count);

// Where each parameter begins, in elements from the unit's start.
std::vector<int64_t> param_offsets(const UnitSpec& unit);

}  // namespace lockstep::layout
