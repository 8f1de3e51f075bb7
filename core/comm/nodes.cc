#include "core/comm/nodes.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/text.h"

namespace lockstep::core {
namespace {

using Facts = std::vector<RankFacts>;

constexpr const char* kCost =
    ": what ranks exchange crosses between nodes once for each rank that needs it, and not once "
    "for a node. ";

// Rule 3: the first rank that follows another one than its neighbour; facts.size(): none.
size_t out_of_order(const Facts& facts) {
  for (size_t r = 0; r < facts.size(); ++r) {
    const bool behind = r > 0 && facts[r].host == facts[r - 1].host &&
                        facts[r].local_rank == facts[r - 1].local_rank + 1;
    if (facts[r].local_rank != 0 && !behind) return r;
  }
  return facts.size();
}

void by_host(const Facts& facts, Nodes& nodes) {
  std::map<std::string, int> seen;
  for (const RankFacts& f : facts)
    nodes.of_rank.push_back(seen.emplace(f.host, static_cast<int>(seen.size())).first->second);
}

// Rules 1 and 2: the ranks of each node.
std::vector<int> by_runs(const Facts& facts, Nodes& nodes) {
  std::vector<int> counts;
  for (size_t r = 0; r < facts.size(); ++r) {
    if (r == 0 || facts[r].local_rank == 0 || facts[r].host != facts[r - 1].host)
      counts.push_back(0);
    ++counts.back();
    nodes.of_rank.push_back(static_cast<int>(counts.size()) - 1);
  }
  return counts;
}

}  // namespace

int ranks_of_node(const Facts& facts) {
  int most = 0;
  for (const RankFacts& f : facts)
    most = std::max(most, f.ranks_of_node == 0 ? static_cast<int>(facts.size()) : f.ranks_of_node);
  return most;
}

Nodes nodes_of(const Facts& facts) {
  Nodes nodes;
  nodes.sizes.most = ranks_of_node(facts);
  if (nodes.sizes.most >= std::ssize(facts)) {  // as they say, whatever their places
    nodes.of_rank.assign(facts.size(), 0);
    nodes.sizes.together = static_cast<int>(facts.size());
    return nodes;
  }
  if (const size_t odd = out_of_order(facts); odd < facts.size()) {
    by_host(facts, nodes);
    nodes.sizes.together = 1;
    nodes.advice = text("rank ", odd, ", number ", facts[odd].local_rank, " of ", facts[odd].host,
                        ", does not follow number ", facts[odd].local_rank - 1, " there", kCost,
                        "Number the ranks node by node (srun --distribution=block, mpirun --map-by "
                        "slot)");
    return nodes;
  }
  const std::vector<int> counts = by_runs(facts, nodes);
  for (const int count : counts) nodes.sizes.together = std::gcd(nodes.sizes.together, count);
  const auto [fewest, most] = std::minmax_element(counts.begin(), counts.end());
  if (nodes.sizes.together == 1 && *most > 1)
    nodes.advice = text("nodes have ", *fewest, " to ", *most,
                        " ranks, and no number above 1 divides those of each", kCost,
                        "Start as many ranks on each node");
  return nodes;
}

}  // namespace lockstep::core
