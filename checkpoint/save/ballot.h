// How the ranks of one generation agree that a save is complete. cli injects an implementation:
// over the c10d store for workers, in memory for tests.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::checkpoint {

// One attempt at one checkpoint is one ballot, named by its attempt-unique directory name.
// A rank votes on one attempt after another: when all have voted on one, the earlier ones are over
// and an implementation forgets them.
// Thread: called from the save thread of each rank. Every wait has the deadline given.
class Ballot {
 public:
  virtual ~Ballot() = default;
  // Rank's own vote, an opaque text (vote.h: digest or error). Errors: kIo, kAborted.
  virtual Result<void> cast(const std::string& attempt, int rank, const std::string& vote) = 0;
  // All votes in rank order. Errors: kTimeout naming the ranks that did not vote, kAborted.
  virtual Result<std::vector<std::string>> collect(const std::string& attempt, int world_size,
                                                   std::chrono::milliseconds deadline) = 0;
  // Rank 0 tells what came of it; the others wait for it. Errors as above.
  virtual Result<void> announce(const std::string& attempt, const std::string& outcome) = 0;
  virtual Result<std::string> await_outcome(const std::string& attempt,
                                            std::chrono::milliseconds deadline) = 0;
};

}  // namespace lockstep::checkpoint
