// What happens in a round, in order: which stage computes, which units are gathered, freed and
// exchanged around it. Pure. Schedule (core/sharding) carries it out, the plan of memory
// (memory_walk.h) walks through it.
//
//   forward   for stage i: gather i, and i+1 ahead; forward(i); release i
//   loss      forward and backward of the head at once
//   backward  for stage i, last to first: gather i, and i-1 ahead; backward(i); release i;
//             exchange i: it travels while the next stage computes, then it is folded
#pragma once

#include <vector>

#include "layout/model_spec.h"
#include "layout/strategy.h"

namespace lockstep::layout {

// What a stage of the model works on: the embedding, a block, the head, which is the loss stage.
struct StageUnits {
  std::vector<int> units;  // of the model
  bool backward_needs_weights = true;
};
std::vector<StageUnits> stages_of(const ModelSpec& spec);

// Which of the units that are gathered holds a unit of the model (wrap.h).
struct UnitPlace {
  int gathered = 0;
  bool frozen = false;
};

enum class Pass { kForward, kLoss, kBackward };

// The lists name gathered units.
struct RoundItem {
  Pass pass = Pass::kForward;
  size_t stage = 0;
  // Before it computes: gathers to start, where the unit is not there; units that must be there.
  std::vector<int> gather, needed;
  // After it: gathers to start; units to free; exchanges to finish, to take to their second leg and
  // to start.
  std::vector<int> gather_after, release, finish, advance, start;
};

struct RoundPlan {
  std::vector<RoundItem> items;
  // Exchanges that are under way at the end, oldest first. They travel under the next round's
  // forward and are finished before its loss, or at the end of the step.
  std::vector<int> travelling;

  // `places`: by unit of the model.
  static RoundPlan training(const std::vector<StageUnits>& stages,
                            const std::vector<UnitPlace>& places, const Strategy& strategy);
  // Ends with the loss and exchanges nothing.
  static RoundPlan evaluation(const std::vector<StageUnits>& stages,
                              const std::vector<UnitPlace>& places, const Strategy& strategy);
};

}  // namespace lockstep::layout
