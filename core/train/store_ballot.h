// checkpoint::Ballot over the ranks' shared store (c10d): for runs without agents that carry votes.
// Rank 0 removes the keys of earlier attempts when all have voted on a later one, so the store
// holds those of the last attempt on which all voted, and of later ones.
#pragma once

#include "checkpoint/save/ballot.h"
#include "core/comm/shared_store.h"

namespace lockstep::core {

class StoreBallot : public checkpoint::Ballot {
 public:
  explicit StoreBallot(SharedStore& store) : store_(store) {}
  Result<void> cast(const std::string& attempt, int rank, const std::string& vote) override;
  Result<std::vector<std::string>> collect(const std::string& attempt, int world_size,
                                           std::chrono::milliseconds deadline) override;
  Result<void> announce(const std::string& attempt, const std::string& outcome) override;
  Result<std::string> await_outcome(const std::string& attempt,
                                    std::chrono::milliseconds deadline) override;

 private:
  void forget_earlier(int world_size);

  SharedStore& store_;
  std::vector<std::string> earlier_;  // attempts with keys in the store; of rank 0
};

}  // namespace lockstep::core
