#include "layout/norm_tree.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "layout/fold_order.h"

namespace lockstep::layout {
namespace {

// The sum of a whole subtree of leaves, in their memory. Requires: a power of two of them.
double sum_of_subtree(double* leaves, int64_t count) {
  for (int64_t n = count / 2; n > 0; n /= 2)
    for (int64_t i = 0; i < n; ++i) leaves[i] = leaves[2 * i] + leaves[2 * i + 1];
  return leaves[0];
}

}  // namespace

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

void NormTree::add_own(int rank, std::span<double> squares, std::span<double> row) const {
  LOCKSTEP_CHECK(static_cast<int64_t>(squares.size()) == tiles(), squares.size(), " ", tiles());
  int64_t first = 0;
  double *mine = squares.data(), *out = row.data();
  for (const ShardLayout& unit : units_) {
    double* leaves = mine;
    for (const SlotRun& node : nodes_of(unit, rank, first)) {
      *out++ = sum_of_subtree(leaves, node.count);
      leaves += node.count;
    }
    mine += unit.tiles_per_rank;
    first += unit.tiles;
  }
  LOCKSTEP_CHECK(out <= row.data() + row.size(), "a row of ", row.size());
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
