// Bytes that reached this rank from other ranks, counted where a collective is issued.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

namespace lockstep::core {

enum class Traffic {
  kGather,    // parameters
  kExchange,  // gradients
  kOther,     // losses, norms, votes, snapshots
};

struct WireBytes {
  struct Count {
    int64_t all = 0;
    int64_t other_nodes = 0;  // of these, from ranks of other nodes
  };
  Count gather, exchange, other;

  Count& of(Traffic traffic) {
    return traffic == Traffic::kGather ? gather : traffic == Traffic::kExchange ? exchange : other;
  }
  Count total() const {
    return {gather.all + exchange.all + other.all,
            gather.other_nodes + exchange.other_nodes + other.other_nodes};
  }
  void add(const WireBytes& more, int64_t sign = 1) {
    for (auto [mine, theirs] :
         {std::pair(&gather, &more.gather), std::pair(&exchange, &more.exchange),
          std::pair(&other, &more.other)}) {
      mine->all += sign * theirs->all;
      mine->other_nodes += sign * theirs->other_nodes;
    }
  }
  // What came after `before`.
  WireBytes since(const WireBytes& before) const {
    WireBytes grown = *this;
    grown.add(before, -1);
    return grown;
  }
};

// Counts for one rank. `node_of_rank`: by rank of the communicator.
class WireCounter {
 public:
  WireCounter(int rank, std::vector<int> node_of_rank)
      : rank_(static_cast<size_t>(rank)), node_of_rank_(std::move(node_of_rank)) {}

  // What a rank has of its own does not travel.
  void add(Traffic traffic, int from, int64_t bytes) {
    const auto source = static_cast<size_t>(from);
    LOCKSTEP_CHECK(source < node_of_rank_.size() && bytes >= 0, bytes, " bytes from rank ", from,
                   " of ", node_of_rank_.size());
    if (source == rank_) return;
    WireBytes::Count& count = bytes_.of(traffic);
    count.all += bytes;
    if (node_of_rank_[source] != node_of_rank_[rank_]) count.other_nodes += bytes;
  }
  void set_nodes(std::vector<int> node_of_rank) { node_of_rank_ = std::move(node_of_rank); }
  const WireBytes& bytes() const { return bytes_; }

 private:
  size_t rank_;
  std::vector<int> node_of_rank_;
  WireBytes bytes_;
};

}  // namespace lockstep::core
