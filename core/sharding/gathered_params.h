// One unit's parameters, whole, in the compute type: views of one flat buffer.
//
//   start -> finish -> weight(i) … -> release
//
// The views returned by weight(i) live as long as this does. release() takes the memory from under
// them and the next gather puts it back, so that what a stage saved sees the same storage. Where no
// rank shares the state the buffer is the shard itself: always there.
// Borrows group and pool. Thread: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/sharding/buffer_pool.h"
#include "layout/shard_layout.h"

namespace lockstep::core {

class GatheredParams {
 public:
  // `shard_S`: what this rank gives to a gather, always of its memory. `group`: those that share
  // the state.
  GatheredParams(const layout::UnitSpec& spec, const layout::ShardLayout& layout,
                 at::Tensor shard_S, Gatherer& group, BufferPool& pool);

  // Nothing where the parameters are there. Collective.
  void start();
  // Errors: those of Pending::wait.
  Result<void> finish();
  void release();
  // What others gave, whole; undefined where it is not there, or where no rank shares the state.
  at::Tensor arrived() const {
    return resident() || !has_memory_ || gather_ ? at::Tensor() : gathered_U_;
  }
  const at::Tensor& weight(int param) const { return weights_[static_cast<size_t>(param)]; }

 private:
  bool resident() const { return group_.world_size() == 1; }
  std::string name_;
  Gatherer& group_;
  BufferPool& pool_;
  at::Tensor shard_S_;
  at::Tensor gathered_U_;  // its storage's memory is swapped in and out unless resident
  std::vector<at::Tensor> weights_;
  bool has_memory_ = true;
  PendingPtr gather_;
};

}  // namespace lockstep::core
