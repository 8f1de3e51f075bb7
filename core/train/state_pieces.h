// The trainer's state as the checkpoint room sees it: pieces of named tensors and where their
// bytes lie.
#pragma once

#include <memory>
#include <vector>

#include "checkpoint/state.h"
#include "core/sharding/unit.h"

namespace lockstep::core {

// What this rank writes: the tiles it owns, each of the whole job's tiles by one rank only.
std::vector<checkpoint::LivePiece> owned_pieces(std::vector<std::unique_ptr<Unit>>& units);
// What this rank needs back: all it holds. `weights_only` leaves the optimizer's state out.
std::vector<checkpoint::LiveTarget> held_targets(std::vector<std::unique_ptr<Unit>>& units,
                                                 bool weights_only);

}  // namespace lockstep::core
