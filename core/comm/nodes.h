// On which nodes the ranks of a generation are, concluded from what each has said of itself. Pure,
// no Torch.
//
// 1. A rank belongs to the node of the rank before where both have one host, its place there is
//    behind that one's, and the node is not full. Places may have gaps, where a node goes on with
//    fewer workers. Several nodes may be on one machine, as in tests.
// 2. Where each node's ranks follow each other, as many together are on one node as all nodes can
//    be cut into: 4 of 8 + 4 + 4, 2 of 4 + 2, 1 of 3 + 2.
// 3. Where ranks of one host have ranks of another one between them (srun --distribution=cyclic),
//    1, and a host is a node.
#pragma once

#include <string>
#include <vector>

#include "core/comm/rank_facts.h"
#include "layout/shard_layout.h"

namespace lockstep::core {

// Ranks of a machine, which they must agree on too: the most that a rank has heard of. Where a
// launcher does not say it, ranks know no more than their own place.
int ranks_of_node(const std::vector<RankFacts>& facts);

struct Nodes {
  std::vector<int> of_rank;
  layout::NodeRanks sizes;
  std::string advice;  // why ranks that share a node make no groups, and what to do; "": they do
};
// `facts`: by rank. Requires: not empty.
Nodes nodes_of(const std::vector<RankFacts>& facts);

}  // namespace lockstep::core
