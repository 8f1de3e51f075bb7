// The trainer's state as the checkpoint room sees it: pieces of named tensors and where their
// bytes lie. Of what is trained: frozen units are not part of it.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/record/state.h"
#include "core/sharding/unit.h"

namespace lockstep::core {

// What this rank writes: the tiles it owns, each of the whole job's tiles by one rank only.
std::vector<checkpoint::LivePiece> owned_pieces(std::vector<std::unique_ptr<Unit>>& units);
// What this rank needs back: all it holds. `weights_only` leaves the optimizer's state out.
std::vector<checkpoint::LiveTarget> held_targets(std::vector<std::unique_ptr<Unit>>& units,
                                                 bool weights_only);

// All that the model has, whole: the same on every rank.
std::vector<checkpoint::TensorPiece> model_pieces(const std::vector<std::unique_ptr<Unit>>& units);
std::set<std::string> parameter_names(const std::vector<std::unique_ptr<Unit>>& units);

}  // namespace lockstep::core
