// The sum of squares behind the gradient norm (layout/norm_tree.h), among ranks. Ranks of equal
// place in their groups own parts that follow each other: those add up first, along a tree of
// them, and then the ranks of a group tell each other. So a rank hears the nodes of one run of
// parts from each neighbour, and no more for more ranks.
#pragma once

#include <memory>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/word_merge.h"
#include "layout/norm_tree.h"

namespace lockstep::core {

class NormSum {
 public:
  // Of the trained units, in model order, cut alike. Borrows the groups' communicators.
  NormSum(const std::vector<layout::ShardLayout>& units, const Groups& groups);
  ~NormSum();

  const layout::NormTree& tree() const { return tree_; }
  // From what this rank tells, tree().width() numbers at most. Collective. Errors: those of
  // Pending::wait.
  Result<double> total(std::vector<double> row) const;

 private:
  // One exchange of nodes: member m of its ranks has parts from first + m * of_member on.
  class Nodes;
  const layout::NormTree tree_;
  const Groups groups_;
  std::unique_ptr<Nodes> first_, last_;  // first_: among peers, where there are two legs
};

}  // namespace lockstep::core
