// When somebody counts as lost.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep::launcher::control {

inline constexpr int64_t kMs = 1'000'000;

// The order matters: a node is suspected first, and evicted then. A standby succeeds the lost
// coordinator before that one's nodes end their workers.
struct Timing {
  int64_t report_ns = 200 * kMs;      // between two reports of a node with nothing new
  int64_t suspect_ns = 1000 * kMs;    // of silence: a node is suspect
  int64_t evict_ns = 1500 * kMs;      // ... it is lost; for a standby the coordinator is
  int64_t fence_ns = 3000 * kMs;      // without a coordinator: a node ends its workers
  int64_t ack_ns = 1000 * kMs;        // to promise a generation
  int64_t reap_ns = 10'000 * kMs;     // until the workers that end for it are reaped
  int64_t reset_ns = 100 * kMs;       // to come back after its connection broke
  int64_t try_ns = 400 * kMs;         // with one candidate, when looking for a coordinator
  int64_t stop_ns = 12'000 * kMs;     // after a request to stop an agent without workers leaves
  int64_t give_up_ns = 20'000 * kMs;  // an agent that finds no coordinator leaves
  int64_t join_ns = 600'000 * kMs;    // ... the first one; a coordinator waits so long for nodes
  int64_t scan_ns = 20 * kMs;         // between two looks at all nodes
  int64_t linger_ns = 2000 * kMs;     // for all to learn that the job has ended
};

// For links that may be silent for up to `silence_ns`: what follows from silence takes as much
// longer. With 1.5 s it is Timing as it stands.
constexpr Timing tolerating(int64_t silence_ns) {
  Timing t;
  const int64_t beyond_fence_ns = t.give_up_ns - t.fence_ns;
  t.evict_ns = silence_ns;
  t.suspect_ns = silence_ns * 2 / 3;
  t.fence_ns = 2 * silence_ns;
  t.ack_ns = std::max(t.ack_ns, t.suspect_ns);
  t.give_up_ns = t.fence_ns + beyond_fence_ns;
  return t;
}

// For agents that start over: whoever else is left does so at most give_up_ns later, and is waited
// for a last call longer. Nobody else is to come.
constexpr Timing starting_over(Timing t, int64_t last_call_ns) {
  t.join_ns = t.give_up_ns + last_call_ns;
  return t;
}

}  // namespace lockstep::launcher::control
