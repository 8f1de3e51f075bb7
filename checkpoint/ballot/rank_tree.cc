#include "checkpoint/ballot/rank_tree.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "checkpoint/record/manifest_parts.h"

namespace lockstep::checkpoint {
namespace {

// Ranks that `rank` speaks for where the world has no end.
int64_t reach(const RankTree& tree, int rank) {
  constexpr int64_t kEnd = int64_t{1} << 40;
  if (rank == 0) return kEnd;
  if (tree.shape == RankTree::Shape::kTwoLevels) return rank % tree.group() == 0 ? tree.group() : 1;
  int64_t ranks = 1;
  while (rank % (ranks * RankTree::kFanIn) == 0) ranks *= RankTree::kFanIn;
  return ranks;
}

}  // namespace

std::vector<int> RankTree::children(int rank) const {
  const int64_t end = std::min<int64_t>(world_size, rank + reach(*this, rank));
  std::vector<int> ranks;
  for (int64_t child = rank + 1; child < end; child += reach(*this, static_cast<int>(child)))
    ranks.push_back(static_cast<int>(child));
  LOCKSTEP_CHECK(ranks.empty() || (ranks.front() == rank + 1 && last(ranks.back()) == last(rank)),
                 "rank ", rank, " hears ranks ", ranks.front(), " to ", last(ranks.back()),
                 " and speaks for those to ", last(rank));
  return ranks;
}

int RankTree::group() const { return static_cast<int>(ranks_in_a_part(world_size)); }

int RankTree::last(int rank) const {
  return static_cast<int>(std::min<int64_t>(world_size, rank + reach(*this, rank)) - 1);
}

int RankTree::height(int rank) const {
  int most = -1;
  for (const int child : children(rank)) most = std::max(most, height(child));
  return most + 1;
}

std::string key_of(const std::string& prefix, int rank) { return text(prefix, "/", rank); }

Result<std::vector<Heard>> hear_children(Ballot& ballot, const RankTree& tree, int rank,
                                         const std::string& prefix,
                                         std::chrono::milliseconds deadline) {
  const int64_t start_ns = system_clock().monotonic_ns();
  std::vector<Heard> all;
  for (const int child : tree.children(rank)) {
    const std::string key = key_of(prefix, child);
    const auto patience = tree.patience(child, deadline);
    const int64_t waited_ms = (system_clock().monotonic_ns() - start_ns) / kNsPerMs;
    auto words = ballot.hear(
        key, std::chrono::milliseconds(std::max<int64_t>(0, patience.count() - waited_ms)));
    if (words.ok())
      ballot.forget(key);
    else if (words.error().code != Code::kTimeout)
      return words.error();
    else if (tree.last(child) > child)
      words = Error{Code::kTimeout, text("rank ", child, ", which reports for ranks ", child,
                                         " to ", tree.last(child))};
    else
      words = Error{Code::kTimeout, text("rank ", child)};
    all.push_back({child, std::move(words)});
  }
  return all;
}

}  // namespace lockstep::checkpoint
