// What the ranks tell each other once a step, or once a validation, in one small all-gather
// (layout/slot_map.h): the losses and valid tokens of their own slots, and their flags.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/comm/communicator.h"
#include "core/sharding/rank_flags.h"

namespace lockstep::core {

struct SlotLoss {
  double sum = 0;  // of the valid tokens' losses, fp64
  int64_t valid_tokens = 0;
};

class RankSums {
 public:
  RankSums(const layout::StepSums& places, int rank);

  // Of a slot that this rank computed.
  void set_loss(int64_t slot, double loss) { own(places_.loss(slot)) = loss; }
  void set_valid_tokens(int64_t slot, int64_t tokens);
  void set_flags(const RankFlags& mine);

  // Collective. The rest is there once it has ended, on every rank the same.
  PendingPtr gather(Communicator& comm);
  SlotLoss total() const;   // added in slot order
  RankFlags flags() const;  // of all ranks together

 private:
  double& own(int64_t place) { return own_.data_ptr<double>()[place - places_.row(rank_)]; }

  const layout::StepSums places_;
  const int rank_;
  at::Tensor own_, all_;  // fp64: a row, and those of all ranks
};

}  // namespace lockstep::core
