// The gradients of one unit: written by a slot's backward, exchanged, folded.
//
//   grad(i), grad_sum(i) written -> start -> (advance) -> finish -> … -> folded()
//
// What travels where, and what is added on the way, is said by an ExchangePlan
// (layout/exchange_plan.h), whose rules the methods cite. Nothing of it is for a frozen unit.
// Shapes: U = padded elements of the whole unit. Borrows spec, groups and pools. Thread: the
// training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "core/comm/communicator.h"
#include "core/sharding/buffer_pool.h"
#include "core/sharding/fold_tree.h"
#include "core/sharding/shipment.h"
#include "core/sharding/strategy.h"

namespace lockstep::core {

class GradExchange {
 public:
  GradExchange(const layout::UnitSpec& spec, const layout::ShardLayout& layout,
               const Strategy& strategy, const Groups& groups, Pools& pools);

  // View of a slot's gradient, in the wire dtype; the first call of a slot takes the buffer.
  at::Tensor grad(int param);
  // fp32 accumulator of a gradient summed inside the slot; zero at first. start rounds it once to
  // the wire dtype and takes its memory; an fp32 wire's is the exchange buffer; a frozen unit's is
  // read by nobody.
  at::Tensor grad_sum(int param);

  // 64 bits of the slot's gradients, which are complete: as they would travel, alike for every
  // world size and strategy.
  uint64_t digest();
  // They are not needed: nothing travels, and nothing is added.
  void discard();
  // The gradients of this round are complete; a rank that computed no slot wrote none. Collective.
  void start(std::shared_ptr<const layout::ExchangePlan> plan, const ExchangeChecks& checks = {});
  // Where there are two legs: waits for the first one, adds what the group adds, and starts the
  // second one in the round that has it. Collective. Errors: those of Pending::wait.
  Result<void> advance();
  // Waits for both and folds. Nothing where no exchange is under way. Errors: those of
  // Pending::wait.
  Result<void> finish();
  bool under_way() const { return plan_ != nullptr; }
  // Of what was audited since the last call: of the exchanges in the group, and among groups.
  ShippedDigests take_digests_in_group() { return in_group_.take_digests(); }
  ShippedDigests take_digests_among_groups() { return among_groups_.take_digests(); }
  // The step's gradient sum over the owned tiles, fp32 [owned_elements]; ends the step's fold. Its
  // memory is Pools::sums', and the caller gives it back there.
  at::Tensor folded();
  // The slots that are in it so far, each once.
  SlotRun summed_slots() const { return of_all_.pushed(); }

 private:
  void begin();
  void round_sums();
  void start_native();
  Result<void> finish_native();

  const layout::UnitSpec& spec_;
  Strategy strategy_;
  Groups groups_;
  BufferPool& pool_;
  layout::ShardLayout layout_;
  std::vector<int64_t> offsets_;  // of the parameters
  at::Tensor send_U_;             // this slot's gradients, padding zeroed
  std::vector<at::Tensor> sums_;  // bf16 wire: fp32 accumulators that were begun, by param
  std::vector<bool> sum_begun_;
  std::shared_ptr<const layout::ExchangePlan> plan_;  // of the exchange under way
  ExchangeChecks checks_;                             // of it
  bool relayed_ = false;                              // what the first leg brought
  Shipment in_group_, among_groups_;
  at::Tensor native_U_;
  PendingPtr native_;
  FoldTree of_rank_;   // rule 1: this rank's slots, [U]
  FoldTree of_group_;  // rule 3: the group's slots of a round or a step, [joint elements]
  FoldTree of_all_;    // rule 4: all slots, [owned elements]
};

}  // namespace lockstep::core
