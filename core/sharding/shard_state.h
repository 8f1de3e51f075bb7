// A rank's shard of one unit's state: fp32 master weights, Adam's m and v (fp32, or bf16 where the
// strategy says so), or Muon's momentum in m's place, and the copy in the compute type that is
// gathered. Where it is replicated, the rank holds more than it owns: `held` is what it updates;
// `owned` is the part whose gradient sum it folds and that it writes to checkpoints.
//
//   (make_master, filled from outside) -> refresh_copy -> update, of the copy as well -> …
//
// A frozen unit keeps its weights alone, in the form that is gathered.
// S = held elements, padded to whole tiles; A = those of them that are not Muon's. Borrows nothing.
// Thread: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/result.h"
#include "core/comm/communicator.h"
#include "core/kernels/kernel_types.h"
#include "core/sharding/strategy.h"
#include "layout/shard_layout.h"

namespace lockstep::core {

using layout::Segment;
using layout::ShardLayout;

class ShardState {
 public:
  ShardState(const layout::UnitSpec& spec, const ShardLayout& layout, const Strategy& strategy,
             int rank);

  at::Tensor master_S, adam_m_S, adam_v_A;  // undefined where there are none
  // Does Muon update this parameter of the unit?
  bool is_muons(int param) const { return muons_[static_cast<size_t>(param)]; }
  // Where in adam_v_A the held element `at` lies, of a parameter that is not Muon's.
  int64_t place_in_v(int param, int64_t at) const {
    return at - muons_before_[static_cast<size_t>(param)];
  }
  const std::vector<Segment>& held_segments() const { return held_segments_; }
  const std::vector<Segment>& owned_segments() const { return owned_segments_; }
  int64_t owned_offset() const { return owned_offset_; }  // of the owned part in the tensors
  // What is gathered, where the unit computes; the same tensor for the life of the state.
  const at::Tensor& compute_S() const { return copy_S_.defined() ? copy_S_ : master_S; }

  // The copy of the held element `at`, where it lies beside the weights in bf16: what changes a
  // weight writes it as well. Null: refresh_copy brings it up to date.
  Bf16* copy_beside(int64_t at) const;

  // Room for a frozen unit's fp32 weights, until refresh_copy has made what is kept.
  void make_master();
  // Brings the compute-precision copy up to date: after init, load, and an update that did not.
  void refresh_copy();
  // Where there is a copy: frees the weights that it was made from, for what only computes.
  void drop_master();
  // Where the host writes the state: the tensors themselves, or, where those lie on a device,
  // tensors in its own memory, of zeros when they are made. pull() brings them up to date, push()
  // takes them to the device and gives their memory back.
  struct HostState {
    at::Tensor master_S, adam_m_S, adam_v_A;
  };
  const HostState& host();
  void pull();
  void push();
  // What each rank owns is up to date: so becomes what it holds for the others, whose `copies` of
  // the state gather it. Collective. Errors: those of Pending::wait.
  Result<void> gather_copies(Gatherer& copies);

 private:
  at::Tensor zeros(int64_t elements, at::ScalarType type) const;
  template <typename F>
  void for_each_copy(F&& f);
  Strategy strategy_;
  bool frozen_;
  int64_t held_elements_, owned_offset_;
  std::vector<Segment> held_segments_, owned_segments_;
  std::vector<bool> muons_;            // by param
  std::vector<int64_t> muons_before_;  // by param: held elements of Muon's that lie before it
  HostState host_;
  at::Tensor copy_S_;  // undefined where what is gathered is master_S
};

}  // namespace lockstep::core
