// How the ranks vote that a save is complete, and learn what came of it. One attempt at one
// checkpoint is one poll, named by its attempt-unique directory name.
//
//   1. each rank but the first of a group tells its vote; the first hears its group
//      (RankTree::kTwoLevels), may join its votes, and tells them in one piece
//   2. rank 0 hears the first of each group
//   3. rank 0 announces the outcome, which all others wait for
//
// Votes are forgotten when they were heard, an outcome when all have voted in a later poll: then
// nobody asks for it any more.
// Thread: one, the save thread of a rank. Borrows the ballot.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/ballot/ballot.h"
#include "checkpoint/ballot/rank_tree.h"

namespace lockstep::checkpoint {

class Polls {
 public:
  Polls(Ballot& ballot, int rank, int world_size, std::chrono::milliseconds deadline)
      : ballot_(ballot), rank_(rank), tree_(tree_of(world_size)), deadline_(deadline) {}
  // So long a poll may take at any rank.
  static std::chrono::milliseconds patience(int world_size, std::chrono::milliseconds deadline) {
    return tree_of(world_size).whole_patience(deadline);
  }

  using Texts = std::vector<std::string>;
  // What the first of a group makes of its votes, in rank order, when all are there.
  using Join = std::function<Texts(Texts)>;

  // Steps 1 and 2. `mine` is an opaque text (vote.h). On rank 0 all votes in rank order, elsewhere
  // nothing. No `join`: votes are passed on as they are. Errors: kTimeout naming the ranks that did
  // not vote; the ballot's.
  Result<Texts> vote(const std::string& attempt, const std::string& mine, const Join& join = {});
  // The same of a rank that has no time to hear anybody: those that it speaks for count as silent.
  Result<void> vote_alone(const std::string& attempt, const std::string& mine);
  // Step 3. Errors: the ballot's.
  Result<void> announce(const std::string& attempt, const std::string& outcome);
  Result<std::string> await_outcome(const std::string& attempt);

 private:
  static RankTree tree_of(int world_size) { return {RankTree::Shape::kTwoLevels, world_size}; }

  Ballot& ballot_;
  const int rank_;
  const RankTree tree_;
  const std::chrono::milliseconds deadline_;
  std::vector<std::string> announced_;  // attempts whose outcome is not forgotten yet; of rank 0
};

}  // namespace lockstep::checkpoint
