// The workers' rendezvous store: what c10d::TCPStore is elsewhere, but inside the coordinator and
// behind the control plane's proof. Pure: requests and replies are opaque bytes to who carries them
// (worker_link/store_wire.h has the format).
//
//   worker --(Unix socket)--> its agent --(control plane)--> coordinator: on_request
//   worker <----------------- its agent <------------------- StoreReply
//
// Keys live in spaces, one a generation ("g3-7f2a91"): a request for a space that is not open is
// refused, so a worker of an older generation can touch nothing.
// A connection has one request under way at a time; a get or wait for keys that are not there is
// parked until they are, the space is forgotten, or the client goes.
// Thread: one.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "worker_link/store_wire.h"

namespace lockstep::launcher::net {

// One worker's connection: `node` is the coordinator's word for the agent (its PeerId, or whatever
// is unique), `peer` the agent's for the worker.
struct StoreClient {
  uint64_t node = 0, peer = 0;
  auto operator<=>(const StoreClient&) const = default;
};
struct StoreReply {
  StoreClient client;
  std::string bytes;
};
using StoreReplies = std::vector<StoreReply>;

struct StoreLimits {
  size_t max_key_bytes = 1024;
  size_t max_value_bytes = size_t{1} << 20;
  size_t max_request_keys = 4096;
  size_t max_keys = size_t{1} << 20;           // of all spaces
  size_t max_total_bytes = size_t{256} << 20;  // keys and values of all spaces
  size_t max_parked = size_t{1} << 16;         // clients that wait for a key
};

class StoreServer {
 public:
  explicit StoreServer(StoreLimits limits = {}) : limits_(limits) {}

  // Requests for `space` are served from now on.
  void open(const std::string& space);
  // Drops the space and its keys; who waits in it is told `reason`.
  StoreReplies forget(const std::string& space, const std::string& reason);

  // The reply to this request if it has one yet, and those to others that it woke.
  StoreReplies on_request(StoreClient client, std::string_view request);
  void on_client_gone(StoreClient client);
  void on_node_gone(uint64_t node);

  size_t key_count() const { return key_count_; }
  size_t parked_count() const { return parked_.size(); }

 private:
  struct Space {
    std::map<std::string, std::string, std::less<>> values;
    std::map<std::string, std::set<StoreClient>, std::less<>> waiting;  // by a missing key
  };
  struct Parked {
    StoreRequest request;
    std::string missing;  // the key it waits for now
  };

  std::string problem(const StoreRequest& request) const;
  StoreAnswer answer(Space& space, const StoreRequest& request, StoreReplies& woken);
  StoreAnswer add(Space& space, const std::string& key, int64_t more, StoreReplies& woken);
  StoreAnswer put(Space& space, const std::string& key, std::string value, StoreReplies& woken);
  void wake(Space& space, const std::string& key, StoreReplies& woken);

  const StoreLimits limits_;
  std::map<std::string, Space, std::less<>> spaces_;
  std::map<StoreClient, Parked> parked_;
  size_t key_count_ = 0, total_bytes_ = 0;
};

// An agent's side: which of its workers' connections wait for an answer. Pure.
class StoreRelay {
 public:
  // A worker asked / the answer goes out / its connection ended.
  void on_request(uint64_t peer) { waiting_.insert(peer); }
  void on_reply(uint64_t peer) { waiting_.erase(peer); }
  void on_gone(uint64_t peer) { waiting_.erase(peer); }
  // The coordinator is lost, or the generation is over: what to send to whom. `reason` ends up in
  // the worker's error.
  StoreReplies refuse_all(const std::string& reason);

 private:
  std::set<uint64_t> waiting_;
};

}  // namespace lockstep::launcher::net
