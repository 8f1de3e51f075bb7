#include "layout/norm_tree.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "layout/fold_order.h"

namespace lockstep::layout {

NormTree::NormTree(std::vector<ShardLayout> units) : units_(std::move(units)) {
  for (const ShardLayout& unit : units_) tiles_ += unit.tiles_per_rank;
  const int parts = units_.empty() ? 0 : units_.front().world_size;
  for (int part = 0; part < parts; ++part) width_ = std::max(width_, nodes(part, part + 1));
}

std::vector<SlotRun> NormTree::nodes_of(const ShardLayout& unit, int64_t first_tile, int first,
                                        int end) {
  const int64_t begin = unit.tiles_before(first);
  return subtrees_of({first_tile + begin, unit.tiles_before(end) - begin});
}

int64_t NormTree::nodes(int first, int end) const {
  int64_t nodes = 0, first_tile = 0;
  for (const ShardLayout& unit : units_) {
    nodes += std::ssize(nodes_of(unit, first_tile, first, end));
    first_tile += unit.tiles;
  }
  return nodes;
}

int64_t NormTree::heard(int at_once) const {
  if (units_.empty()) return 0;
  const ShardLayout& unit = units_.front();
  if (!unit.sizes.two_legs(unit.world_size))
    return nodes(0, unit.world_size) * std::min(at_once, unit.world_size);
  const int peers = unit.groups(), group = unit.sizes.group;
  return nodes(0, peers) * (std::min(at_once, peers) + std::min(at_once, group));
}

std::vector<SlotRun> NormTree::own_nodes(int rank) const {
  std::vector<SlotRun> runs;
  int64_t first_tile = 0, own_first = 0;
  for (const ShardLayout& unit : units_) {
    int64_t at = own_first;
    const int part = unit.part_of(rank);
    for (const SlotRun& node : nodes_of(unit, first_tile, part, part + 1)) {
      runs.push_back({at, node.count});
      at += node.count;
    }
    own_first += unit.tiles_per_rank;
    first_tile += unit.tiles;
  }
  return runs;
}

void NormTree::merge(int first, int middle, int end, Sums before, Sums others,
                     std::span<double> out) const {
  const double *from_before = before.data(), *from_others = others.data();
  double* to = out.data();
  int64_t first_tile = 0;
  for (const ShardLayout& unit : units_) {
    std::vector<SlotRun> open;
    std::vector<double> sums;  // of them
    const auto push = [&](const SlotRun& node, double sum) {
      open.push_back(node);
      sums.push_back(sum);
      while (open.size() > 1 && halves(open.end()[-2], open.back())) {
        const double right = sums.back();
        open.pop_back();
        sums.pop_back();
        open.back().count *= 2;
        sums.back() += right;
      }
    };
    for (const SlotRun& node : nodes_of(unit, first_tile, first, middle))
      push(node, *from_before++);
    for (const SlotRun& node : nodes_of(unit, first_tile, middle, end)) push(node, *from_others++);
    LOCKSTEP_CHECK(open == nodes_of(unit, first_tile, first, end), open.size(), " nodes");
    to = std::copy(sums.begin(), sums.end(), to);
    first_tile += unit.tiles;
  }
  LOCKSTEP_CHECK(to == out.data() + out.size(), "room for ", out.size());
}

double NormTree::total(Sums all) const {
  FoldOrder order(Reduction::kTree);
  std::vector<double> open;  // as order has them
  const auto merge_top = [&] {
    const double top = open.back();
    open.pop_back();
    open.back() += top;
  };
  const double* next = all.data();
  int64_t first_tile = 0;
  for (const ShardLayout& unit : units_) {
    for (const SlotRun& node : nodes_of(unit, first_tile, 0, unit.world_size)) {
      open.push_back(*next++);
      for (int additions = order.push(node); additions > 0; --additions) merge_top();
    }
    first_tile += unit.tiles;
  }
  LOCKSTEP_CHECK(next == all.data() + all.size(), all.size(), " sums");
  while (open.size() > 1) merge_top();
  return open.empty() ? 0 : open.front();
}

}  // namespace lockstep::layout
