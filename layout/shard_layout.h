// Who owns which tiles of a unit. Pure arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "layout/model_spec.h"

namespace lockstep::layout {

// How ranks lie on nodes. From a number n: rank r is on node r / n; 0: all are on one.
struct NodeRanks {
  NodeRanks(int of_each = 0) : most(of_each), together(of_each) {}
  NodeRanks(int most_, int together_) : most(most_), together(together_) {}

  int most;  // of a node; 0: all
  // Of so many consecutive ranks, the first of which is a multiple of it, each lot lies on one
  // node; 1: a rank alone; 0: all.
  int together;
  bool operator==(const NodeRanks&) const = default;
};

// Of groups of consecutive ranks; both divide W, and S is 1, G or W.
struct GroupSizes {
  int shard = 1;  // S: that share one copy of the state
  // G: among whom gradients travel first, and who bring a byte of another group's in once for all
  // of them. 1 or W: there is one leg.
  int group = 1;

  // Whether who has one part gathers from all others in two legs (core/comm/two_legs.h).
  bool two_legs(int world_size) const { return group > 1 && group < world_size; }
  bool operator==(const GroupSizes&) const = default;
};

// Ranks that tell one of them what is small (core/comm/word_merge.h): those of a group of the tree
// of ranks, or more where a node has more.
inline int told_at_once(const GroupSizes& sizes) { return std::max(8, sizes.group); }

// A unit's parameters lie one after the other, each starting at a tile. The tiles are cut into W
// equal parts (the last ones may hold fewer real tiles, or none), each owned by one rank. Ranks are
// in groups of G consecutive ones, as their gradients travel (exchange_plan.h): the l-th of each
// group, together, own the W / G parts that follow part l * W / G, its joint part. S consecutive
// ranks share one copy of the state, of which each holds what it owns (S = W), its joint part
// (S = G), or all (S = 1).
//
//   W = 4, G = 2    parts            0    1    2    3
//                   owned by         0    2    1    3
//                   held by, S = 2  0,2  0,2  1,3  1,3
struct ShardLayout {
  int64_t tiles = 0;           // of the unit
  int64_t tiles_per_rank = 0;  // ceil(tiles / W)
  int world_size = 1;
  GroupSizes sizes;

  static ShardLayout create(int64_t unit_tiles, int world_size, const GroupSizes& sizes) {
    const int s = sizes.shard, g = sizes.group;
    LOCKSTEP_CHECK(unit_tiles >= 0 && world_size >= 1 && g >= 1 && world_size % g == 0 &&
                       (s == 1 || s == g || s == world_size),
                   unit_tiles, " tiles on ", world_size, " ranks, ", s, " to a copy, groups of ",
                   g);
    return {unit_tiles, (unit_tiles + world_size - 1) / world_size, world_size, sizes};
  }
  int copies() const { return world_size / sizes.shard; }
  int groups() const { return world_size / sizes.group; }
  int part_of(int rank) const { return rank % sizes.group * groups() + rank / sizes.group; }
  int owner_of(int part) const { return part % groups() * sizes.group + part / groups(); }
  // Real ones of the parts before this one.
  int64_t tiles_before(int part) const { return std::min(tiles, part * tiles_per_rank); }
  // Of the part that `rank` owns.
  int64_t first_tile(int rank) const { return tiles_before(part_of(rank)); }
  int64_t tile_count(int rank) const { return real_tiles(part_of(rank), 1); }
  // Of all parts that it holds.
  int64_t first_held_tile(int rank) const { return tiles_before(first_held_part(rank)); }
  int64_t held_tile_count(int rank) const { return real_tiles(first_held_part(rank), copies()); }
  int64_t owned_elements() const { return tiles_per_rank * kTileElements; }
  int64_t joint_elements() const { return owned_elements() * groups(); }
  int64_t held_elements() const { return owned_elements() * copies(); }
  int64_t padded_elements() const { return owned_elements() * world_size; }
  // Where in what it holds the part that it owns begins.
  int64_t owned_offset(int rank) const {
    return (part_of(rank) - first_held_part(rank)) * owned_elements();
  }

 private:
  int first_held_part(int rank) const { return part_of(rank) / copies() * copies(); }
  int64_t real_tiles(int first_part, int parts) const {
    return std::clamp<int64_t>(tiles - first_part * tiles_per_rank, 0, parts * tiles_per_rank);
  }
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
