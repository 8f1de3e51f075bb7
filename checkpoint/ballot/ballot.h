// What the ranks of one generation tell each other about a checkpoint. core/train injects an
// implementation over the ranks' store; tests have one in memory.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"

namespace lockstep::checkpoint {

// Words under keys, each of which is told once. Thread-safe. Every wait has the deadline given.
class Ballot {
 public:
  virtual ~Ballot() = default;
  // Errors: kIo, kPeerLost, kAborted.
  virtual Result<void> tell(const std::string& key, const std::string& words) = 0;
  // Waits for the words. Errors: kTimeout, kPeerLost, kAborted.
  virtual Result<std::string> hear(const std::string& key, std::chrono::milliseconds deadline) = 0;
  // Nobody asks for `key` again. What fails here does no harm: the words stay.
  virtual void forget(const std::string& key) = 0;
};

}  // namespace lockstep::checkpoint
