#include "layout/norm_tree.h"

#include <algorithm>
#include <utility>

#include "layout/fold_order.h"

namespace lockstep::layout {

NormTree::NormTree(std::vector<ShardLayout> units) : units_(std::move(units)) {
  for (const ShardLayout& unit : units_) tiles_ += unit.tiles_per_rank;
  const int ranks = units_.empty() ? 0 : units_.front().world_size;
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t nodes = 0, first = 0;
    for (const ShardLayout& unit : units_) {
      nodes += static_cast<int64_t>(nodes_of(unit, rank, first).size());
      first += unit.tiles;
    }
    width_ = std::max(width_, nodes);
  }
}

std::vector<SlotRun> NormTree::own_nodes(int rank) const {
  std::vector<SlotRun> runs;
  int64_t first = 0, own_first = 0;
  for (const ShardLayout& unit : units_) {
    int64_t at = own_first;
    for (const SlotRun& node : nodes_of(unit, rank, first)) {
      runs.push_back({at, node.count});
      at += node.count;
    }
    own_first += unit.tiles_per_rank;
    first += unit.tiles;
  }
  return runs;
}

double NormTree::sum(std::span<const double> rows) const {
  if (units_.empty()) return 0;
  const size_t ranks = static_cast<size_t>(units_.front().world_size);
  std::vector<size_t> next(ranks);  // of each rank's row
  for (size_t r = 0; r < ranks; ++r) next[r] = r * (rows.size() / ranks);
  FoldOrder order(Reduction::kTree);
  std::vector<double> open;  // as order has them
  const auto merge_top = [&] {
    const double top = open.back();
    open.pop_back();
    open.back() += top;
  };
  int64_t first = 0;
  for (const ShardLayout& unit : units_) {
    for (int part = 0; part < unit.world_size; ++part) {
      const int rank = unit.owner_of(part);
      for (const SlotRun& node : nodes_of(unit, rank, first)) {
        open.push_back(rows[next[static_cast<size_t>(rank)]++]);
        for (int additions = order.push(node); additions > 0; --additions) merge_top();
      }
    }
    first += unit.tiles;
  }
  while (open.size() > 1) merge_top();
  return open.empty() ? 0 : open.front();
}

}  // namespace lockstep::layout
