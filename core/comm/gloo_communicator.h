// The communicator that any rank can reach any other with: host tensors, over TCP.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/comm/communicator.h"

namespace c10d {
class Store;
}

namespace lockstep::core {

struct GlooOptions {
  int rank, size;
  std::vector<int> node_of_rank;  // for counting bytes
  std::string bind_address;       // of this machine; empty: what `interface` says
  std::string interface;          // "" = the one that has a route to the host's name
  int threads;
  double init_timeout_s, timeout_s;
};

// Whether Gloo can listen there (GlooOptions). Errors: kConfig, saying which interfaces there are.
Result<void> check_address(const std::string& bind_address, const std::string& interface);

class GlooGroup : public Communicator {
 public:
  // What one rank has for another one: contiguous bytes, as many on both sides.
  struct Message {
    int peer;
    at::Tensor bytes;
  };
  // Fills `received` and sends `sent`. What two ranks have for each other is in one order on both.
  // Counted as `traffic`.
  virtual PendingPtr messages(const std::string& what, const std::vector<Message>& received,
                              const std::vector<Message>& sent, Traffic traffic) = 0;
  // Bytes are counted by these nodes from now on.
  virtual void set_nodes(std::vector<int> node_of_rank) = 0;
};

// Collective. Requires: size > 1. May throw what c10d throws.
std::unique_ptr<GlooGroup> connect_gloo(const GlooOptions& options,
                                        c10::intrusive_ptr<c10d::Store> store);

}  // namespace lockstep::core
