// What the ranks tell each other once a step, or once a validation, in one small all-gather
// (layout/slot_map.h): the losses and valid tokens of their own slots, and their flags.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/comm/communicator.h"
#include "layout/slot_map.h"

namespace lockstep::core {

// What a rank's last save came to. The worst of all ranks' decides.
enum class SaveTrouble {
  kNone,
  kFailed,    // it is tried again
  kTooLong,   // saves have failed for checkpoint.outage_minutes
  kDiskFull,  // the same, and the last one for want of room
};

// What every rank tells the others once a step, so that all decide alike.
struct RankFlags {
  bool stop = false;       // this rank was asked to stop
  bool save_busy = false;  // its checkpoint engine still writes
  SaveTrouble trouble = SaveTrouble::kNone;
  bool save_time = false;      // one is due by rank 0's clock
  bool snapshot_busy = false;  // a snapshot in memory is under way
  int64_t snapshot_step = -1;  // newest one that is complete
};

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
  RankFlags flags() const;  // any rank's; of numbers the most, of snapshot_step the least

 private:
  double& own(int64_t place) { return own_.data_ptr<double>()[place - places_.row(rank_)]; }

  const layout::StepSums places_;
  const int rank_;
  at::Tensor own_, all_;  // fp64: a row, and those of all ranks
};

}  // namespace lockstep::core
