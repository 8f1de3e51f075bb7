// The trainer's state as the checkpoint room sees it: pieces of named tensors and where their
// bytes lie. Of what is trained: frozen units are not part of it.
//
// A save, or a snapshot in memory, reads the state on a thread of its own under the next step:
//
//   update -> freeze -> (the engine reads; training computes) -> wait_read -> thaw -> update
//
// Of a GPU no more is page-locked for it than two buffers (layout/device_memory.h).
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/save/state_source.h"
#include "core/sharding/unit.h"
#include "layout/device_memory.h"

namespace lockstep::core {

// What this rank writes: the tiles it owns, each of the whole job's tiles by one rank only.
// Borrows the units. Thread: the training thread, but for read().
class LiveState : public checkpoint::StateSource {
 public:
  static std::unique_ptr<LiveState> of(const std::vector<std::unique_ptr<Unit>>& units,
                                       int64_t buffer_bytes = layout::kSaveBufferBytes);
  // Where the state lies on a device, reads from now on have what it was given until now.
  virtual void freeze() = 0;
  // Later device work waits for the reads. Requires: all reads since freeze() have said that the
  // state may change. On the host this is all that is needed.
  virtual void thaw() = 0;
};

// What this rank loads: what it owns, where ShardState::host has it; from there other copies of the
// state get it (TrainingStep::take_loaded). `weights_only` leaves the optimizer's state out.
std::vector<checkpoint::LiveTarget> owned_targets(std::vector<std::unique_ptr<Unit>>& units,
                                                  bool weights_only);

// All that the model has, whole: the same on every rank.
std::vector<checkpoint::TensorPiece> model_pieces(const std::vector<std::unique_ptr<Unit>>& units);
std::set<std::string> parameter_names(const std::vector<std::unique_ptr<Unit>>& units);

}  // namespace lockstep::core
