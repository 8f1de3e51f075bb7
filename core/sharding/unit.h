// One unit on one rank: its shard of the state, the gathered parameters, the exchange of its
// gradients.
//
//   parameters   start_gather -> finish_gather -> weight(i) -> release   (views of one buffer)
//   gradients    begin_grads -> grad(i) written -> start_exchange -> finish_exchange -> folded()
//
// The views returned by weight(i) live as long as the unit; release() takes the memory from under
// them and the next gather puts it back, so that what autograd saved sees the same storage.
// Shapes: S = held elements (padded to whole tiles), U = padded elements of the whole unit.
// Borrows the spec, pool and communicator. Thread: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "core/comm/communicator.h"
#include "core/sharding/buffer_pool.h"
#include "core/sharding/fold_tree.h"
#include "core/sharding/shard_layout.h"
#include "core/sharding/strategy.h"

namespace lockstep::core {

class Unit {
 public:
  Unit(const model_spec::UnitSpec& spec, const Strategy& strategy, Communicator& comm,
       BufferPool& pool);

  const model_spec::UnitSpec& spec() const { return spec_; }
  const ShardLayout& layout() const { return layout_; }

  // State, fp32 [S]. `held` is what this rank updates; `owned` is the part whose gradient sum it
  // folds and that it writes to checkpoints. They differ where the state is replicated (ddp).
  at::Tensor master_S, adam_m_S, adam_v_S;
  const std::vector<Segment>& held_segments() const { return held_segments_; }
  const std::vector<Segment>& owned_segments() const { return owned_segments_; }
  int64_t owned_offset() const { return owned_offset_; }  // of the owned part in the state tensors
  int64_t owned_tiles() const { return layout_.tile_count(comm_.rank()); }
  // Brings the compute-precision copy up to date; after init, load and every update.
  void refresh_compute_copy();

  void start_gather();
  Result<void> finish_gather();
  void release();
  bool gathered() const { return resident_ || has_memory_; }
  const at::Tensor& weight(int param) const { return weights_[static_cast<size_t>(param)]; }

  // Memory for this slot's gradients in the wire dtype, padding zeroed. Idempotent until
  // start_exchange.
  void begin_grads();
  at::Tensor grad(int param);
  // fp32 accumulator of a gradient that is summed inside the slot; zero at first. Rounded once to
  // the wire dtype by start_exchange. With an fp32 wire it is the exchange buffer itself.
  at::Tensor grad_sum(int param);
  // `active` ranks (0 … active-1) computed a slot in this round. Starts the exchange; a rank that
  // computed none calls this without begin_grads. Collective.
  void start_exchange(int active);
  // Waits and folds. Errors: those of Pending::wait.
  Result<void> finish_exchange();
  // The step's gradient sum over the owned tiles, fp32 [shard_elements]; ends the step's fold.
  at::Tensor folded() { return fold_.result(); }

 private:
  void make_weights();
  at::Tensor view_of(at::Tensor& flat, int param) const;

  const model_spec::UnitSpec& spec_;
  Strategy strategy_;
  Communicator& comm_;
  BufferPool& pool_;
  ShardLayout layout_;
  std::vector<Segment> held_segments_, owned_segments_;
  std::vector<int64_t> param_offsets_;  // in elements from the unit's start
  int64_t owned_offset_ = 0;
  bool resident_ = false;  // the gathered form is kept for ever
  bool has_memory_ = false;

  at::Tensor compute_S_;   // bf16 copy of the shard; undefined in fp32
  at::Tensor gathered_U_;  // its storage's memory is swapped in and out unless resident
  std::vector<at::Tensor> weights_;
  PendingPtr gather_;

  at::Tensor send_U_, received_;
  c10::DataPtr unused_;
  std::vector<at::Tensor> sums_;  // bf16 wire: fp32 accumulators, by param
  std::vector<bool> sum_begun_;
  PendingPtr exchange_;
  int exchange_active_ = 0;
  FoldTree fold_;
};

// The parameters of one unit of the model, counted from 0, inside the Unit that holds them: a wrap
// policy may put several together. Borrows both.
class UnitPart {
 public:
  UnitPart(Unit& unit, int first_param, const model_spec::UnitSpec& spec)
      : unit_(&unit), first_(first_param), spec_(&spec) {}
  Unit& unit() const { return *unit_; }
  const model_spec::UnitSpec& spec() const { return *spec_; }
  const at::Tensor& weight(int param) const { return unit_->weight(first_ + param); }
  at::Tensor grad(int param) const { return unit_->grad(first_ + param); }
  at::Tensor grad_sum(int param) const { return unit_->grad_sum(first_ + param); }

 private:
  Unit* unit_;
  int first_;
  const model_spec::UnitSpec* spec_;
};
using UnitParts = std::span<const UnitPart>;

}  // namespace lockstep::core
