#include "core/comm/nodes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::core {
namespace {

using Facts = std::vector<RankFacts>;

constexpr const char* kCost =
    ". Data then crosses between nodes once for each rank that needs it, instead of once for each "
    "node. ";

// Rule 3: the first rank whose host was left for another one before it; facts.size(): none.
size_t out_of_order(const Facts& facts) {
  std::set<std::string> left;
  for (size_t r = 1; r < facts.size(); ++r) {
    if (facts[r].host == facts[r - 1].host) continue;
    left.insert(facts[r - 1].host);
    if (left.contains(facts[r].host)) return r;
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
    const bool begins = r == 0 || facts[r].host != facts[r - 1].host ||
                        facts[r].local_rank <= facts[r - 1].local_rank ||
                        counts.back() == nodes.sizes.most;
    if (begins) counts.push_back(0);
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
  LOCKSTEP_CHECK(!facts.empty(), "no rank is on a node");
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
    nodes.advice = text("rank ", odd, " is on ", facts[odd].host,
                        ", like earlier ranks, but ranks of other nodes lie between them", kCost,
                        "Number the ranks node by node (srun --distribution=block, mpirun --map-by "
                        "slot)");
    return nodes;
  }
  const std::vector<int> counts = by_runs(facts, nodes);
  LOCKSTEP_CHECK(nodes.of_rank.size() == facts.size() &&
                     std::accumulate(counts.begin(), counts.end(), 0) == std::ssize(facts),
                 nodes.of_rank.size(), " ranks are on nodes, of ", facts.size());
  for (const int count : counts) nodes.sizes.together = std::gcd(nodes.sizes.together, count);
  const auto [fewest, most] = std::minmax_element(counts.begin(), counts.end());
  if (nodes.sizes.together == 1 && *most > 1)
    nodes.advice = text("nodes have ", *fewest, " to ", *most,
                        " ranks, and these counts have no common divisor above 1", kCost,
                        "Start the same number of ranks on each node");
  return nodes;
}

}  // namespace lockstep::core
