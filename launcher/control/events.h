// The vocabulary of the control plane: what can happen, and what can be done about it. Each event
// and each action is declared here once, whichever machines use it. The machines own no socket,
// process, file or clock.
//
//   agent or simulation --NodeEvent--> JobNode --NodeAction--> agent or simulation
//                                        |   ^
//                       Coordinator --JobEvent--> Supervisor --JobAction--> Coordinator
//
// A rank is always one of the whole job. Times are monotonic nanoseconds.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "launcher/control/incident.h"
#include "launcher/control/succession.h"
#include "launcher/host/run_files.h"

namespace lockstep::launcher::control {

// --- What happens to workers. The agent sees it on its node; the coordinator tells its supervisor
// of the whole job.
struct SpawnFailed {  // none of them is left
  std::string message;
};
struct WorkersExited {  // all deaths that were noticed in one look, in any order
  std::vector<WorkerExit> exits;
  int64_t alive_ns = 0;  // when they were last known to live
};
struct Tick {                   // time has passed
  std::vector<Sample> samples;  // by rank; those of reaped workers are ignored
};
inline constexpr int kAllocationEnds = 0;  // no signal told of it
struct StopRequested {
  int signal = kAllocationEnds;
};

// --- What happens to a node besides.
struct Delivered {  // by another node
  Message message;
};
struct PeerGone {  // the connection that this node reported on has ended
  NodeId id = 0;
};
struct LeaderLost {          // the connection to whom this node reports broke, or never was
  std::string other_secret;  // not empty: an agent is there, and its secret is not this node's
};
struct HealthSeen {    // what counters of this node's hardware say from now on
  std::string broken;  // Report::broken
  std::vector<std::string> lines;
};
struct Spawned {  // the workers of SpawnWorkers run
  std::vector<int32_t> pids;
};
struct Decided {  // the rendezvous answers Propose
  int64_t base = -1, generation = -1;
  bool mine = false;
  std::string error;  // not empty: it cannot be written, and nothing is decided
};
struct Superseded {};  // the rendezvous names another node as the one that leads

// --- What happens to a job besides.
struct Begin {};   // enough nodes are there for its first generation
struct TookOver {  // for Begin, after a lost coordinator
  WorkerExit lost;
  double silent_ms;
  int64_t world_size;
};
// How many nodes the next generation can have; 1 until it is said. While FORMING: begin anew.
struct Nodes {
  int64_t count = 1;            // 0: too few, wait for the next Nodes; < 0: no more will come
  int64_t next_generation = 0;  // the next one's number is at least this
  std::string reason;           // of a count < 0
};
struct Committed {  // also an action: the generation may run, and the one before is over
  int64_t generation = -1;
  std::string nonce;
};
struct Started {};      // every worker of the generation runs
struct ChangeAsked {};  // it shall have more nodes after one of its next steps

// --- What is done to workers. The supervisor asks for it, and each agent does it on its node.
struct TermWorkers {};    // SIGTERM to those that are left
struct KillWorkers {};    // SIGKILL to them, and to their children
struct ChangeWorkers {};  // they end for a planned change [P24]

// --- What the supervisor asks for besides.
struct ReplaceRank {  // by that of a spare, where there is one: it makes the others wait
  int64_t rank;
  std::string why;
};
struct Prepare {  // a generation
  int64_t generation, world_size, nodes;
};
struct Finish {  // the job
  int exit_status;
  std::string reason;
};

// --- What a node asks its agent for besides.
struct Send {
  NodeId to = 0;  // who reported to this node, or whom it follows
  Message message;
};
struct Follow {
  Peer leader;  // report to it from now on; id 0: the node that the rendezvous names
};
struct SpawnWorkers {
  Order order;
};
struct Propose {  // to all agents of the job, at the rendezvous
  Succession next;
};
struct Changed {};  // what `lockstep status` shows: members, suspects, state
struct Leads {
  int64_t after = -1;  // this node coordinates from now on, after this generation
};
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

// LoggedEvent is for events.jsonl and the console.
using NodeEvent = std::variant<Delivered, PeerGone, LeaderLost, Spawned, SpawnFailed, WorkersExited,
                               Tick, StopRequested, Decided, Superseded, HealthSeen>;
using NodeAction =
    std::variant<Send, Follow, SpawnWorkers, TermWorkers, KillWorkers, ChangeWorkers, Propose,
                 Committed, Changed, Leads, SteppedDown, LoggedEvent, Leave>;
using JobEvent = std::variant<Begin, TookOver, Nodes, Committed, Started, SpawnFailed,
                              WorkersExited, Tick, StopRequested, ChangeAsked>;
using JobAction = std::variant<Prepare, TermWorkers, KillWorkers, ChangeWorkers, ReplaceRank,
                               LoggedEvent, Finish>;
using NodeActions = std::vector<NodeAction>;
using JobActions = std::vector<JobAction>;

}  // namespace lockstep::launcher::control
