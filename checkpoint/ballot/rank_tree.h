// The ranks as a tree with rank 0 at its root, along which words go up: each rank hears a few
// others and speaks for them, so that nobody hears all.
//
//   kDeep       a rank's parent has its last digit to the base kFanIn that is not 0 set to 0: rank
//               0 hears 1 to 7, 8, 16, …, 56, 64, …; at most 7 ranks a level, of which there
//               are log8 W. For words that do not grow on their way, as sums.
//   kTwoLevels  groups of ranks, those of a part of a manifest, and rank 0 hears the first of each.
//               For words that grow: they are passed on once, and nobody hears many.
//
// A rank speaks for a run of ranks that begins with itself: what children say, in order, is in
// the order of ranks.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/ballot/ballot.h"

namespace lockstep::checkpoint {

struct RankTree {
  static constexpr int kFanIn = 8;
  enum class Shape { kDeep, kTwoLevels };

  Shape shape = Shape::kDeep;
  int world_size = 1;

  std::vector<int> children(int rank) const;  // ascending
  int group() const;                          // ranks of a group of kTwoLevels
  int last(int rank) const;                   // of those that it speaks for
  int height(int rank) const;                 // 0: it hears nobody
  // Deadlines nest: whoever waits does so for longer than those wait that it waits for.
  //
  //   patience           for a rank's words. A rank that hears others gets an eighth more a level,
  //                      so that who waited in vain can still say for whom
  //   outcome_patience   for rank 0's word, behind one's own: rank 0 may begin to hear as late as
  //                      it may hear for
  //   whole_patience     of both together, at any rank: what looks on at a poll, or at what is
  //                      settled, may give it up behind that
  std::chrono::milliseconds patience(int rank, std::chrono::milliseconds deadline) const {
    return deadline + height(rank) * deadline / 8;
  }
  std::chrono::milliseconds outcome_patience(std::chrono::milliseconds deadline) const {
    return 2 * patience(0, deadline);
  }
  std::chrono::milliseconds whole_patience(std::chrono::milliseconds deadline) const {
    return patience(0, deadline) + outcome_patience(deadline);
  }
};

// What one child said, or that nothing came: then `error` is kTimeout and names the ranks.
struct Heard {
  int rank = 0;
  Result<std::string> words;
};
// The words of all children of `rank` under key_of(child), which are forgotten then. Errors: those
// of the ballot but kTimeout.
Result<std::vector<Heard>> hear_children(Ballot& ballot, const RankTree& tree, int rank,
                                         const std::string& prefix,
                                         std::chrono::milliseconds deadline);
// Where `rank` puts its words.
std::string key_of(const std::string& prefix, int rank);

}  // namespace lockstep::checkpoint
