// One unit on one rank: its shard of the state, the gathered parameters, the exchange of its
// gradients.
//
//   parameters   start_gather -> finish_gather -> weight(i) -> release   (views of one buffer)
//   gradients    begin_grads -> grad(i) written -> start_exchange -> finish_exchange -> folded()
//
// The views returned by weight(i) live as long as the unit; release() takes the memory from under
// them and the next gather puts it back, so that what a stage saved sees the same storage.
// An exchange has two legs: parts of the gradient meet in the group that shares a copy of the
// state, and then among the groups, where each rank folds what it owns.
// A frozen unit keeps its weights alone, in the form that is gathered, and exchanges nothing.
// Shapes: S = held elements (padded to whole tiles), U = padded elements of the whole unit.
// Borrows the spec, pool and communicators. Thread: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "core/comm/communicator.h"
#include "core/sharding/buffer_pool.h"
#include "core/sharding/fold_tree.h"
#include "core/sharding/shipment.h"
#include "core/sharding/strategy.h"
#include "layout/shard_layout.h"

namespace lockstep::core {

class Unit {
 public:
  Unit(const layout::UnitSpec& spec, const Strategy& strategy, const Groups& groups,
       BufferPool& pool);

  const layout::UnitSpec& spec() const { return spec_; }
  const ShardLayout& layout() const { return layout_; }
  bool frozen() const { return spec_.frozen; }

  // State, fp32 [S]. `held` is what this rank updates; `owned` is the part whose gradient sum it
  // folds and that it writes to checkpoints. They differ where the state is replicated.
  // forward_only, or frozen: no m and v.
  at::Tensor master_S, adam_m_S, adam_v_S;
  const std::vector<Segment>& held_segments() const { return held_segments_; }
  const std::vector<Segment>& owned_segments() const { return owned_segments_; }
  int64_t owned_offset() const { return owned_offset_; }  // of the owned part in the state tensors
  // Room for a frozen unit's fp32 weights, until refresh_compute_copy has made what is kept.
  void make_master();
  // Brings the compute-precision copy up to date; after init, load and every update.
  void refresh_compute_copy();
  // The state where the host reads and writes it: the tensors themselves, or, where those lie on a
  // device, page-locked copies, made at the first call. pull brings them up to date, once the
  // device's stream is synchronized; push takes them back.
  struct HostState {
    at::Tensor master_S, adam_m_S, adam_v_S;
  };
  const HostState& host_state();
  void pull_state();
  void push_state();

  void start_gather();
  Result<void> finish_gather();
  void release();
  bool gathered() const { return resident_ || has_memory_; }
  const at::Tensor& weight(int param) const { return weights_[static_cast<size_t>(param)]; }

  // Memory for this slot's gradients in the wire dtype, padding zeroed. Idempotent until
  // start_exchange. Requires: not frozen.
  void begin_grads();
  at::Tensor grad(int param);
  // fp32 accumulator of a gradient summed inside the slot; zero at first. start_exchange rounds it
  // once to the wire dtype; an fp32 wire's is the exchange buffer; a frozen unit's, read by nobody.
  at::Tensor grad_sum(int param);
  // The gradients of this round are complete; a rank that computed no slot calls this without
  // begin_grads. Under the block map, only the step's last round travels. Collective.
  void start_exchange(const SlotMap& map, int64_t round);
  // Waits for the first leg and starts the second one, where there are two. Collective. Errors:
  // those of Pending::wait.
  Result<void> advance_exchange();
  // Waits for both and folds. Errors: those of Pending::wait.
  Result<void> finish_exchange();
  // The step's gradient sum over the owned tiles, fp32 [owned_elements]; ends the step's fold.
  at::Tensor folded() { return fold_.result(); }

 private:
  at::TensorOptions options(at::ScalarType dtype) const;  // on the device that computes
  at::Tensor state_tensor(int64_t elements) const;
  template <typename F>
  void for_each_copy(F&& f);
  void make_weights();
  at::Tensor view_of(at::Tensor& flat, int param) const;
  void round_sums();
  void start_native();
  std::vector<std::vector<SlotRun>> runs_in_group(int group) const;
  std::vector<std::vector<SlotRun>> runs_among_groups(bool summed) const;
  at::ScalarType piece_dtype() const { return map_.block ? at::kFloat : strategy_.compute; }
  bool sums_in_group() const;
  void start_second_leg();
  Result<void> finish_native();

  const layout::UnitSpec& spec_;
  Strategy strategy_;
  Groups groups_;
  BufferPool& pool_;
  ShardLayout layout_;
  std::vector<Segment> held_segments_, owned_segments_;
  std::vector<int64_t> param_offsets_;  // in elements from the unit's start
  int64_t owned_offset_ = 0;
  bool resident_ = false;  // the gathered form is kept for ever
  bool has_memory_ = false;

  HostState host_;
  at::Tensor compute_S_;   // the shard as it is gathered; undefined where that is master_S
  at::Tensor gathered_U_;  // its storage's memory is swapped in and out unless resident
  std::vector<at::Tensor> weights_;
  PendingPtr gather_;

  at::Tensor send_U_;
  std::vector<at::Tensor> sums_;  // bf16 wire: fp32 accumulators, by param
  std::vector<bool> sum_begun_;
  SlotMap map_;  // of the exchange under way
  int64_t round_ = 0;
  bool summed_ = false;  // the second leg ships the groups' sums
  Shipment in_group_, among_groups_;
  at::Tensor native_U_;
  PendingPtr native_;
  FoldTree local_;  // block map: this rank's slots, [U]
  FoldTree group_;  // the group's slots of a round, [S]
  FoldTree fold_;   // all slots, owned elements
};

// The parameters of one unit of the model, counted from 0, inside the Unit that holds them: a wrap
// policy may put several together. Borrows both.
class UnitPart {
 public:
  UnitPart(Unit& unit, int first_param, const layout::UnitSpec& spec)
      : unit_(&unit), first_(first_param), spec_(&spec) {}
  Unit& unit() const { return *unit_; }
  const layout::UnitSpec& spec() const { return *spec_; }
  const at::Tensor& weight(int param) const { return unit_->weight(first_ + param); }
  at::Tensor grad(int param) const { return unit_->grad(first_ + param); }
  at::Tensor grad_sum(int param) const { return unit_->grad_sum(first_ + param); }

 private:
  Unit* unit_;
  int first_;
  const layout::UnitSpec* spec_;
};
using UnitParts = std::span<const UnitPart>;

}  // namespace lockstep::core
