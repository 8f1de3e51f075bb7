// What happens to one agent of a job, and what it has to do about it: the events and actions of its
// machines. They are Member, Coordinator, and JobNode, which joins the two. An agent or a
// simulation brings the events and carries out the actions; the machines own no socket, process,
// file or clock.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "launcher/control/succession.h"
#include "launcher/control/supervisor.h"

namespace lockstep::launcher::control {

// Events. Those of this node's workers (WorkersExited, Tick, …) are in supervision.h. A rank is
// always one of the whole job.
struct Delivered {
  Message message;
};
struct PeerGone {
  NodeId id = 0;
};                     // the connection that this node reported on has ended
struct LeaderLost {};  // the connection to whom we report broke, or never was
struct Spawned {
  std::vector<int32_t> pids;
};
struct Decided {  // answers Propose
  int64_t base = -1, generation = -1;
  bool mine = false;
  std::string error;  // not decided: the rendezvous cannot be written
};
struct Superseded {};  // the rendezvous names another node as the one that leads
using Event = std::variant<Delivered, PeerGone, LeaderLost, Spawned, SpawnFailed, WorkersExited,
                           Tick, StopRequested, Decided, Superseded>;

// Actions.
struct Send {
  NodeId to = 0;  // who reported to us, or whom we follow
  Message message;
};
struct Follow {
  Peer leader;
};  // report to it from now on; id 0: whoever the rendezvous names
struct SpawnWorkers {
  Order order;
};
struct TermWorkers {};  // SIGTERM to those that are left
struct KillWorkers {};  // SIGKILL
struct Propose {
  Succession next;
};                  // to all agents of the job, at the rendezvous
struct Committed {  // a generation may run; the one before is over
  int64_t generation = -1;
  std::string nonce;
};
struct Changed {};  // what `lockstep status` shows: members, suspects, state
struct Leads {
  int64_t after = -1;
};  // this node coordinates from now on, after this generation
struct SteppedDown {
  std::string reason;
  bool succeeded = false;  // another node has followed the generation
};
struct Leave {
  int exit_status = 0;
  std::string reason;
  bool alone = false;  // the coordinator was lost, and nobody has taken its place
  bool over = false;   // for all nodes of the job
};
using Action = std::variant<Send, Follow, SpawnWorkers, TermWorkers, KillWorkers, Propose,
                            Committed, Changed, Leads, SteppedDown, Record, Leave>;
using Actions = std::vector<Action>;

inline constexpr int64_t kMs = 1'000'000;

// When somebody counts as lost. The order matters: a node is suspected first, evicted then; a
// coordinator is succeeded by a standby, and after that its nodes end their workers.
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

}  // namespace lockstep::launcher::control
