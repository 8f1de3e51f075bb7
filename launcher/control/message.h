// What the agents of a job say to each other. Both ways carry the whole state, and never a change
// of it: a message that is lost, doubled or late costs time and nothing else.
//
//   node        --Report-->    coordinator   what I am, have promised, run, and have seen
//   coordinator --Order-->     node          what you shall be from now on
//   agent       --NotLeader--> node          I do not coordinate; it follows this one
//   node      <--StoreBytes--> coordinator   a worker's request to the store, and the answer
//
// [P1] A node obeys nothing of an older generation than it has promised, and of that one only what
// the leader says to whom it has promised it.
// In bytes: version (1), kind (1), fields in the order below; base/byte_codec.h. Every count and
// text is bounded. A message is refused that is of another version, or whose numbers no node could
// mean (is_sound): the rest of the launcher checks (LOCKSTEP_CHECK) what follows from sound ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "launcher/control/incident.h"
#include "launcher/control/timing.h"

namespace lockstep::launcher::control {

using NodeId = uint64_t;  // random, of one agent process, never used again; 0: none

// Where an agent can be reached.
struct Peer {
  NodeId id = 0;
  std::string address;  // HOST:PORT of its listener
  bool operator==(const Peer&) const = default;
};

struct Report {
  NodeId id = 0;
  std::string name;     // of the node; identity is `id`
  std::string address;  // of its listener
  uint64_t run = 0;     // a hash of what the configs of all nodes share
  int64_t sequence = 0;
  NodeId follows = 0;      // whose orders it has heard lately: the way back works
  int64_t promised = -1;   // orders of older generations are refused
  NodeId promised_to = 0;  // ... and those of this one by somebody else
  // Since it ran `committed` it has promised to another coordinator than who led that.
  bool promised_elsewhere = false;
  int64_t committed = -1;     // the newest generation that it was told to run
  int64_t members_of = -1;    // the generation whose members' ids it knows
  int32_t alive = 0;          // workers that are not reaped, of any generation
  std::vector<int32_t> pids;  // of `committed`, by local rank, once they are spawned
  std::string spawn_error;    // they could not be
  int32_t exits_from = 0;     // so many ends of `committed` were confirmed; the rest follows
  std::vector<WorkerExit> exits;
  bool computes_wrongly = false;       // an audit has named a rank of this node, in any generation
  std::string broken;                  // why its hardware has failed; empty: it has not
  std::vector<std::string> health;     // what counters of its hardware say, a line each
  std::vector<Sample> samples;         // of `committed`, by local rank
  int32_t stop_signal = 0, stops = 0;  // asked to stop so often, with this signal the last time
  int64_t alive_ns = 0;  // before the first of `exits` was seen its worker lived, so long ago
};

enum class Duty : uint8_t {
  kWait,     // go on as you are; I lead and know you
  kPark,     // no workers: a spare, or not yet placed
  kPrepare,  // kill what you run, promise `generation`, and say so
  kRun,      // run `count` workers from rank `first_rank`
  kFinish,   // kill what you run and exit with `exit_status`
};

struct Order {
  NodeId leader = 0;
  int64_t sequence = 0;  // grows within one leader; an older one than the last is ignored
  int64_t generation = -1;
  Duty duty = Duty::kWait;
  int64_t first_rank = 0, count = 0, world_size = 0;
  std::string nonce;
  bool change = false;              // they end for a planned change [P24]
  bool stop = false, kill = false;  // SIGTERM, SIGKILL to the workers of `generation`
  int32_t exits_seen = 0;
  // For a takeover: who may take over, and what that node has to know.
  int64_t base = -1;  // the last generation that the leader knows of, whose standbys these are
  std::vector<Peer> standbys;
  std::vector<NodeId> members;      // the members' ids; only to standbys that lack it
  std::vector<std::string> barred;  // names of nodes that run no more workers; only to standbys
  int64_t safe_step = -1, restarts = 0, parked = 0;  // parked: so many nodes
  int32_t exit_status = 0;
  std::string reason;
  Patience patience;  // of the whole job; silence_ns 0: the node keeps its own
};

struct NotLeader {
  Peer follows;
};

struct StoreBytes {
  uint64_t worker = 0;  // the node's word for its worker's connection
  bool gone = false;    // that connection has ended
  std::string bytes;
};

using Message = std::variant<Report, Order, NotLeader, StoreBytes>;

inline constexpr int64_t kMostGeneration = int64_t{1} << 48;
inline constexpr int64_t kMostRanks = INT32_MAX;
inline constexpr int64_t kMostPatienceNs = int64_t{1} << 56;  // two years

// Whether the numbers of a message are within their limits, and fit each other:
//   generations   -1 to kMostGeneration
//   ids           not 0: of who sends it, and of members, which are all different
//   an order to run   its ranks are within the world, and there is one at least
//   patience      all of it positive, or nothing said; up to kMostPatienceNs
// What else a message says may be untrue, and whoever reads it has to live with that.
bool is_sound(const Message& message);

std::string encode(const Message& message);
// Ensures: the message is sound. Errors: kCorrupt.
Result<Message> decode(std::string_view bytes);

}  // namespace lockstep::launcher::control
