// One unit's parameters, whole, in the compute type: views of one flat buffer.
//
//   start -> finish -> weight(i) … -> release -> start … -> forget
//
// The views returned by weight(i) live as long as this does. release() takes the memory from under
// them and the next gather puts it back, so that what a stage saved sees the same storage. Where no
// rank shares the state the buffer is the shard itself: always there.
//
// With Strategy::keep_joint_part the first gather leaves this rank's joint part of the unit
// (layout/shard_layout.h), and until forget() the ranks of the group gather from these parts alone.
// Borrows groups and pool. Thread: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "core/comm/two_legs.h"
#include "core/sharding/buffer_pool.h"
#include "core/sharding/strategy.h"
#include "layout/shard_layout.h"

namespace lockstep::core {

class GatheredParams {
 public:
  // `shard_S`: what this rank gives to a gather, always of its memory.
  GatheredParams(const layout::UnitSpec& spec, const layout::ShardLayout& layout,
                 const Strategy& strategy, at::Tensor shard_S, const Groups& groups,
                 BufferPool& pool);

  // Nothing where the parameters are there. Collective.
  void start();
  // Errors: those of Pending::wait.
  Result<void> finish();
  void release();
  // The shards are about to change: the next gather is of them.
  void forget();
  // What others gave, whole; undefined where it is not there, or where no rank shares the state.
  at::Tensor arrived() const {
    return resident() || !has_memory() || gather_ ? at::Tensor() : gathered_U_;
  }
  // Its values: between finish() and release().
  const at::Tensor& weight(int param) const;

 private:
  struct JointPart {
    TwoLegGather legs;
    at::Tensor part_J;
    bool is_there = false;
  };
  bool resident() const { return group_.world_size() == 1; }
  bool has_memory() const { return gathered_U_.storage().data() != nullptr; }
  PendingPtr gather();
  std::string name_;
  Gatherer& group_;  // those that share the state
  BufferPool& pool_;
  at::Tensor shard_S_;
  at::Tensor gathered_U_;  // its storage's memory is swapped in and out unless resident
  std::vector<at::Tensor> weights_;
  std::unique_ptr<JointPart> joint_;  // null: it keeps none
  PendingPtr gather_;
};

}  // namespace lockstep::core
