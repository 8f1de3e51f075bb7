// How many nodes the next generation gets, and how long the others are waited for.
// Pure. Borrows the options. Thread: one. Time: monotonic nanoseconds.
#pragma once

#include <algorithm>
#include <string>

#include "launcher/control/coordinator_options.h"
#include "launcher/control/events.h"

namespace lockstep::launcher::control {

// So many rounds a step takes: each rank computes one slot a round.
int64_t rounds(int64_t slots, int64_t ranks);
// How many nodes of `per_node` ranks shall go on, where `now` train and up to `most` can: as many
// as make the rounds few, and no more; `now`, where more bring no speed.
int64_t grown(int64_t slots, int64_t per_node, int64_t now, int64_t most);
// The least number of nodes above `now` with which a step takes fewer rounds; 0: there is none.
int64_t next_faster(int64_t slots, int64_t per_node, int64_t now);

class GenerationSize {
 public:
  // Requires: 1 <= min_nodes <= max_nodes.
  GenerationSize(const CoordinatorOptions& options, int64_t now_ns);

  struct Counted {
    int64_t have = 0;           // nodes that can be members
    int64_t before = 0;         // nodes of the last generation that was committed
    bool first = false;         // none was committed yet
    bool lacks_quorum = false;  // the others may go on without this coordinator
  };
  // A count of 0 says that it waits, one below 0 that it has waited for long enough, and why.
  Nodes plan(const Counted& counted, int64_t now_ns);

  // Whether so many nodes would do for the next generation, though one of its members is lost.
  bool suffice(const Counted& counted) const;

  // Whether the last `plan` was the first one for which enough nodes were there.
  bool enough_just_came(int64_t now_ns) const { return enough_ns_ == now_ns; }
  // How long it has waited for nodes, and for a quorum. Requires: it waits.
  int64_t waited_ns(int64_t now_ns) const;
  int64_t without_quorum_ns(int64_t now_ns) const;

  void note_quorum(int64_t now_ns);  // Requires: it waits
  void note_lost_member() { lost_member_ = true; }
  // The coordinator itself has slept for so long: that was no waiting.
  void forgive_sleep(int64_t gap_ns);
  void note_committed();

 private:
  bool shrinks(const Counted& counted) const;
  int64_t least(const Counted& counted) const;  // so many nodes are needed
  Nodes plan_first(int64_t have, int64_t now_ns);
  Nodes wait_for(int64_t limit_ns, std::string otherwise, int64_t now_ns);

  const CoordinatorOptions& options_;
  // All of this is about the time since the last commit. -1: not since then.
  int64_t waiting_ns_;      // since when it waits for nodes
  int64_t enough_ns_ = -1;  // since when min_nodes are there, before the first generation
  int64_t quorum_ns_ = -1;  // when half of the members were last there, while it waited
  bool lost_member_ = false;
};

}  // namespace lockstep::launcher::control
