// What a Network (network.h) tells of its connections, and the limits that they have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "launcher/net/endpoint.h"

namespace lockstep::launcher::net {

using PeerId = uint64_t;  // of one connection; never 0, never used again

enum class Via {
  kAccepted,  // it dialed us
  kDialed,    // we dialed it
  kLocal,     // a process of this machine and user, over the Unix socket
};

struct Connected {
  PeerId peer = 0;
  Via via = Via::kAccepted;
  Endpoint local, remote;  // as seen on the connection; empty for kLocal
};
struct Received {
  PeerId peer = 0;
  std::string payload;
};
// The last event of a peer, or the only one of a dial that failed. Not sent for close() of ours.
struct Closed {
  PeerId peer = 0;
  std::string reason;  // "10.0.0.3:4711: it said: the job is done", "…: Connection reset by peer"
  bool other_secret = false;  // of a dial: an agent answered last, and its secret is not ours
};
using ConnectionEvent = std::variant<Connected, Received, Closed>;

// How a connection came to its end.
enum class End {
  kPlain,        // closed, broken, or said goodbye
  kBrokenRules,  // the peer sent what no agent with the secret sends
  kOtherSecret,  // ... an agent's greeting, and then a proof of another secret
};

// Every limit with its name.
struct NetworkLimits {
  size_t max_frame_bytes = size_t{4} << 20;   // of a payload; over the Unix socket kStoreMaxBytes
  size_t max_queue_bytes = size_t{16} << 20;  // waiting for a peer to read; more closes it
  size_t max_unauthenticated = 1024;          // connections; beyond, the oldest is dropped
  size_t max_local = 4096;                    // connections over the Unix socket
  int64_t handshake_ms = 1000;                // from accept, or from connect, to the proof
  int64_t connect_ms = 1000;                  // of one try of a dial
  int64_t retry_ms = 50;                      // between tries at first; doubles up to 1 s
  int64_t silence_ms = 1000;                  // unacknowledged by the peer's kernel: closed
  int64_t linger_ms = 1000;                   // for what is queued when we close
};

}  // namespace lockstep::launcher::net
