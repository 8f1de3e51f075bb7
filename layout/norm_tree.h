// The sum of squares behind the gradient norm: the canonical tree over the tiles of all trained
// units, in model order (docs/ARCHITECTURE.md, rule 5). A rank adds its own tiles up to the nodes
// that cover them, tells the others those few numbers, and every rank adds the rest. Neither the
// number of ranks nor the wrap policy moves a bit. Pure arithmetic.
//
//   unit a: tiles 0 1 2 3 4    unit b: tiles 5 6 7    W = 2
//     rank 0   0-2 of a: {0,1}{2}    5-6 of b: {5}{6}
//     rank 1   3-4 of a: {3}{4}      7 of b:   {7}
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/shard_layout.h"
#include "layout/slot_map.h"

namespace lockstep::layout {

class NormTree {
 public:
  NormTree() = default;
  // Of the trained units, in model order.
  explicit NormTree(std::vector<ShardLayout> units);

  // Squares that a rank has: of each unit as many as the rank that owns most, owned or not.
  int64_t tiles() const { return tiles_; }
  // Numbers that a rank tells the others, as many as the rank that has most.
  int64_t width() const { return width_; }
  // The subtrees of which `rank` tells the sums, width() at most, in the row's order: runs of its
  // squares [tiles()], which are a sum of squares a tile, unit after unit, each unit's room
  // tiles_per_rank long.
  std::vector<SlotRun> own_nodes(int rank) const;
  // The sum over all tiles, from every rank's row [W, width()].
  double sum(std::span<const double> rows) const;

 private:
  // The nodes of the tree that cover what `rank` owns of a unit whose first tile is number `first`.
  static std::vector<SlotRun> nodes_of(const ShardLayout& unit, int rank, int64_t first) {
    return subtrees_of({first + unit.first_tile(rank), unit.tile_count(rank)});
  }
  std::vector<ShardLayout> units_;
  int64_t tiles_ = 0, width_ = 0;
};

}  // namespace lockstep::layout
