// The control plane's transport: authenticated connections between agents, and the Unix socket that
// an agent's own workers use. Carries frames of opaque bytes, whole and in order; decides nothing.
//
//   listen --> peers dial in --> (proof of the secret) --> Connected --> Received … --> Closed
//   dial   --> tries until its deadline ----------------^           \--> Closed (it never came up)
//   listen_local --> processes of this user connect ----^
//
// Nothing of a TCP peer is parsed before it has proved that it knows the job's secret; one that
// does not is dropped, counted, and logged with its address; it never shows up as an event. After
// the proof every frame carries a code over its number and bytes (channel.h): what is altered,
// replayed or injected ends the connection. Frames are not encrypted. docs/SECURITY.md has the
// whole.
//
// Typical use, one thread:
//   while (!done)
//     for (const net::ConnectionEvent& event : network->wait(20, {pidfd, signals.descriptor()}))
//       std::visit(…, event);
//
// Thread: one; no call blocks but wait(). Owns its sockets: destruction closes them at once.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/net/connection_event.h"
#include "launcher/net/secret.h"

namespace lockstep::launcher::net {

struct NetworkOptions {
  Secret secret;
  NetworkLimits limits = {};
  std::string dial_from = "";  // local address of outgoing connections; empty: the route's
  // Takes a line about a rejected connection, at most kMaxWarnings in 10 s; null: the log.
  std::function<void(const std::string&)> warn = nullptr;
};

struct NetworkCounts {
  uint64_t accepted = 0, authenticated = 0;  // over TCP, dialed to us
  uint64_t rejected = 0;                     // of all kinds, and those that broke the rules later
};

class Network {
 public:
  static constexpr int kMaxWarnings = 10;
  explicit Network(NetworkOptions options);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Accepts peers at `at`, whose host is one of this machine's addresses; port 0: the system
  // chooses. Returns the endpoint with its port. Every interface at once ("0.0.0.0", "::") must be
  // asked for by that word. Errors: kConfig (not an address of ours, or the port is taken).
  Result<Endpoint> listen(const Endpoint& at);
  // Accepts processes of the same user at a Unix socket, made at `path` (at most 107 characters,
  // in a folder that only this user can enter). Errors: kConfig, kIo.
  Result<void> listen_local(const std::filesystem::path& path);
  // Tries until `deadline_ms` from now. Connected or Closed follows.
  PeerId dial(const Endpoint& to, int64_t deadline_ms);

  // Queues one frame; a peer that is gone is ignored. Requires: at most max_frame_bytes.
  void send(PeerId peer, std::string payload);
  // wait() has no more events of `peer`. What is queued, and the reason, still go out.
  void close(PeerId peer, const std::string& reason);

  // Waits until something has happened, a descriptor is readable, or `timeout_ms` has passed;
  // returns what happened, in order per peer.
  std::vector<ConnectionEvent> wait(int64_t timeout_ms, const std::vector<int>& descriptors = {});
  NetworkCounts counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::launcher::net
