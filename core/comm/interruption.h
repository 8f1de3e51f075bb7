// A word to everything in this process that waits for other ranks: their generation is over.
// One for the process, as its generation is. Thread-safe.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace lockstep::core {

// From now on every wait of a collective and of the ranks' store ends soon, with kPeerLost.
void interrupt();
bool interrupted();
// Why a wait for `what` ended then.
Error generation_over(const std::string& what);
// Requires: nothing waits any more that was interrupted.
void clear_interruption();

// For a wait that cannot look by itself: while this lives, interrupt() calls `end_wait` once.
class OnInterrupt {
 public:
  explicit OnInterrupt(std::function<void()> end_wait);  // called here when it has happened already
  ~OnInterrupt();
  OnInterrupt(const OnInterrupt&) = delete;
  OnInterrupt& operator=(const OnInterrupt&) = delete;

 private:
  friend void interrupt();
  std::function<void()> end_wait_;
};

}  // namespace lockstep::core
