// When somebody counts as lost.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"

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

// The times from which the others follow; 0: what follows from the number of nodes. The coordinator
// tells its own to the nodes that follow it (Order), so that all of a job go by the same ones.
struct Patience {
  int64_t report_ns = 0, silence_ns = 0, ack_ns = 0, reap_ns = 0;
  bool operator==(const Patience&) const = default;
};

constexpr Patience patience_of(const Timing& t) {
  return {t.report_ns, t.evict_ns, t.ack_ns, t.reap_ns};
}

// What follows from silence takes as much longer as a node may be silent. Requires: nothing but
// report_ns is 0.
constexpr Timing with(Timing t, const Patience& p) {
  LOCKSTEP_CHECK(p.report_ns >= 0 && p.silence_ns > 0 && p.ack_ns > 0 && p.reap_ns > 0, p.report_ns,
                 " ", p.silence_ns, " ", p.ack_ns, " ", p.reap_ns);
  t.report_ns = p.report_ns;
  t.evict_ns = p.silence_ns;
  t.suspect_ns = p.silence_ns * 2 / 3;
  t.fence_ns = 2 * p.silence_ns;
  t.ack_ns = std::max(p.ack_ns, t.suspect_ns);
  t.reap_ns = p.reap_ns;
  t.stop_ns = p.reap_ns + 2000 * kMs;
  t.give_up_ns = t.fence_ns + t.ack_ns + p.reap_ns + 6000 * kMs;
  t.linger_ns = 2 * t.ack_ns;
  return t;
}

// Of a job of up to `nodes`. One thread hears all reports, and asks one node after the other. So
// above kNodesOfShortReports reports come more seldom, 20,480 a second, and a node may be silent
// for as many of them as before; and the answers to an order have a millisecond a node.
inline constexpr int64_t kNodesOfShortReports = 4096;
constexpr Timing timing_of(int64_t nodes, const Patience& given = {}) {
  LOCKSTEP_CHECK(nodes >= 1, nodes, " nodes");
  const Timing plain;
  const auto otherwise = [](int64_t value, int64_t derived) { return value > 0 ? value : derived; };
  const int64_t scaled_nodes = std::max(nodes, kNodesOfShortReports);
  Patience p;
  p.silence_ns = otherwise(given.silence_ns, plain.evict_ns * scaled_nodes / kNodesOfShortReports);
  p.report_ns =
      std::max(plain.report_ns, std::min(plain.report_ns * scaled_nodes / kNodesOfShortReports,
                                         plain.report_ns * p.silence_ns / plain.evict_ns));
  p.ack_ns = otherwise(given.ack_ns, std::max(plain.ack_ns, nodes * kMs));
  p.reap_ns = otherwise(given.reap_ns, plain.reap_ns);
  return with(plain, p);
}

// For agents that start over: whoever else is left does so at most give_up_ns later, and is waited
// for a last call longer. Nobody else is to come.
constexpr Timing starting_over(Timing t, int64_t last_call_ns) {
  t.join_ns = t.give_up_ns + last_call_ns;
  return t;
}

}  // namespace lockstep::launcher::control
