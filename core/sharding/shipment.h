// One exchange in a group: every member has sums over runs of slots, each of a whole buffer of M
// equal parts; afterwards member m has part m of everybody's, in slot order. Data moves, nothing is
// added. Piece k of all members travels together. In an audited exchange the sender has a digest of
// each part that it ships, and the receiver one of each that came: a byte that turned over on the
// way makes the two differ (StateAudit compares them).
//
//   start(mine) -> wait -> for_each -> finish
//
// Borrows group and pool. Thread: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/check.h"
#include "core/audit/bit_flip.h"
#include "core/comm/communicator.h"
#include "core/sharding/buffer_pool.h"
#include "layout/exchange_plan.h"

namespace lockstep::core {

// What is looked at in the exchanges of a unit.
struct ExchangeChecks {
  bool audited = false;        // what is sent and what comes have digests
  size_t site = 0, sites = 1;  // of bit flips (core/audit/bit_flip.h): this unit, of all
};

// Sums over audited exchanges of the digests of parts, by member.
struct ShippedDigests {
  std::vector<uint64_t> sent, received;
};

class Shipment {
 public:
  // `flips`: those that what has come is a site of.
  Shipment(Communicator& group, BufferPool& pool, FlipIn flips);

  bool under_way() const { return leg_ != nullptr; }
  // `leg`: what the members ship; the same on every member, and it outlives the exchange. `mine`:
  // this member's sums, each [M * part_elements], unchanged until wait() has returned. Collective.
  void start(std::vector<at::Tensor> mine, const layout::Leg& leg, int64_t part_elements,
             const ExchangeChecks& checks);
  // Errors: those of Pending::wait.
  Result<void> wait();
  // Calls f(part, run) in slot order. Requires: wait() was fine.
  template <typename F>
  void for_each(F&& f) const {
    // Received buffers hold the parts of those members that have such a piece, in member order.
    LOCKSTEP_CHECK(under_way() && pending_.empty(), "parts are read before they came");
    std::vector<int64_t> next(received_.size(), 0);  // by piece: where the next part begins
    for (size_t m = 0; m < leg_->members(); ++m)
      for (size_t k = 0; k < leg_->of(m).size(); ++k) {
        f(received_[k].narrow(0, next[k], part_elements_), leg_->of(m)[k]);
        next[k] += part_elements_;
      }
  }
  // The parts' memory is free again; returns what was given to start().
  std::vector<at::Tensor> finish();
  // Of what was audited since the last call.
  ShippedDigests take_digests();

 private:
  void add_sent(size_t piece);
  void add_received();

  Communicator& group_;
  BufferPool& pool_;
  std::vector<at::Tensor> mine_, received_;  // by piece
  const layout::Leg* leg_ = nullptr;         // null: none is under way
  int64_t part_elements_ = 0;
  ExchangeChecks checks_;
  ShippedDigests digests_;
  FlipIn flips_;
  std::vector<PendingPtr> pending_;
};

}  // namespace lockstep::core
