// Ranks each of which is connected with a few others: what is small goes along a tree of groups,
// so that to join W ranks costs one of them no more than to join 8, but rank 0, which hears all.
//
//   0  8  16 … 56             a group of leaders (and 64, 128, … are in one with 0)
//   0 1 … 7   8 9 … 15   …    groups of neighbours, in each of which the first one leads
//
// 1. Words rise: a leader receives those of whom each of its group speaks for, and then sends them
//    and its own to the leader of its next group; rank 0 has all.
//    Or they merge: a leader sends on what comes of its own words and theirs (word_merge.h).
// 2. Words descend the same way: what rank 0 has, all have.
// 3. A rank that is lost breaks its connections; who loses one gives up and breaks its own.
//
// What any rank may have for any other one goes over a mesh of all, which is connected when it is
// first used: exchanges, sums, and gathers of parameters and gradients. Up to kFanIn ranks are one
// group, which is that mesh, and gathers all. What goes along the tree is waited for
// in the order in which it began.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/gloo_communicator.h"

namespace lockstep::core {

class TreeCommunicator : public Communicator {
 public:
  static constexpr int kFanIn = 8;

  // Rank 0 hears `mine` of each rank, `bytes` long, with zeros behind it; all get what it `answers`
  // to them, and nobody else hears them. Collective. Errors: those of Pending::wait. Requires:
  // `mine` is no longer than `bytes`, the same number on every rank.
  using Answer = std::function<std::string(const std::vector<std::string>&)>;
  virtual Result<std::string> ask_first(std::string mine, size_t bytes, const Answer& answer) = 0;
  // Bytes are counted by these nodes from now on.
  virtual void set_nodes(std::vector<int> node_of_rank) = 0;
};

// `options.threads`: of the mesh. Collective. Requires: size > 1. May throw what c10d throws.
std::unique_ptr<TreeCommunicator> connect_tree(const GlooOptions& options,
                                               c10::intrusive_ptr<c10d::Store> store);

}  // namespace lockstep::core
