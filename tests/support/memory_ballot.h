// A Ballot for ranks that are threads of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "checkpoint/ballot/ballot.h"

namespace lockstep::checkpoint {

// Thread-safe; shared by all ranks.
class MemoryBallot final : public Ballot {
 public:
  Result<void> tell(const std::string& key, const std::string& words) override;
  Result<std::string> hear(const std::string& key, std::chrono::milliseconds deadline) override;
  void forget(const std::string& key) override;
  size_t size() const;  // words that are not forgotten

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> words_;
};

}  // namespace lockstep::checkpoint
