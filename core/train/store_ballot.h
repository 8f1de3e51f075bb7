// checkpoint::Ballot over the ranks' shared store (c10d): for runs without agents that carry votes.
#pragma once

#include "checkpoint/ballot/ballot.h"
#include "core/comm/shared_store.h"

namespace lockstep::core {

// Borrows the store.
class StoreBallot : public checkpoint::Ballot {
 public:
  explicit StoreBallot(SharedStore& store) : store_(store) {}
  Result<void> tell(const std::string& key, const std::string& words) override;
  Result<std::string> hear(const std::string& key, std::chrono::milliseconds deadline) override;
  void forget(const std::string& key) override;

 private:
  SharedStore& store_;
};

}  // namespace lockstep::core
