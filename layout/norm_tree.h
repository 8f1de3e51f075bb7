// The sum of squares behind the gradient norm: the canonical tree over the tiles of all trained
// units, in model order (docs/ARCHITECTURE.md, rule 5). A rank adds its own tiles up to the nodes
// that cover them, and tells those few numbers. Of parts (shard_layout.h) that follow each other
// they become the nodes that cover all of these, and in the end the sum. Neither the number of
// ranks nor the wrap policy moves a bit. Pure arithmetic.
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
  // The nodes that cover parts [first, end) of each unit; the most of one part, and what a rank
  // tells of its own.
  int64_t nodes(int first, int end) const;
  int64_t width() const { return width_; }
  // Numbers that come to a rank, or less: its peers' and then its neighbours', `at_once` of them
  // in one exchange where they are more (core/sharding/norm_sum.h).
  int64_t heard(int at_once) const;
  // The subtrees of which `rank` tells the sums, width() at most, in the row's order: runs of its
  // squares [tiles()], which are a sum of squares a tile, unit after unit, each unit's room
  // tiles_per_rank long.
  std::vector<SlotRun> own_nodes(int rank) const;
  // The sums of the nodes of parts [first, end), from those of the parts before `middle` and of the
  // others.
  using Sums = std::span<const double>;
  void merge(int first, int middle, int end, Sums before, Sums others, std::span<double> out) const;
  // The sum over all tiles, from the nodes of all parts.
  double total(Sums all) const;

 private:
  // Those of a unit whose first tile is number `first_tile`.
  static std::vector<SlotRun> nodes_of(const ShardLayout& unit, int64_t first_tile, int first,
                                       int end);
  std::vector<ShardLayout> units_;
  int64_t tiles_ = 0, width_ = 0;
};

}  // namespace lockstep::layout
