// A Ballot for ranks that are threads of one process: world size 1, and tests.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>

#include "checkpoint/save/ballot.h"

namespace lockstep::checkpoint {

// Thread-safe; shared by all ranks.
class MemoryBallot final : public Ballot {
 public:
  Result<void> cast(const std::string& attempt, int rank, const std::string& vote) override;
  Result<std::vector<std::string>> collect(const std::string& attempt, int world_size,
                                           std::chrono::milliseconds deadline) override;
  Result<void> announce(const std::string& attempt, const std::string& outcome) override;
  Result<std::string> await_outcome(const std::string& attempt,
                                    std::chrono::milliseconds deadline) override;
  // From now on everything fails with kAborted, waits at once.
  void abort();

 private:
  struct State {
    std::map<int, std::string> votes;
    std::optional<std::string> outcome;
  };
  Result<void> not_aborted() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, State> attempts_;
  bool aborted_ = false;
};

}  // namespace lockstep::checkpoint
