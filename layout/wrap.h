// Which of a model's units are gathered and freed together. Pure.
#pragma once

#include <vector>

#include "layout/model_spec.h"

namespace lockstep::layout {

// A run of consecutive units of the model as one. Tiles keep their order, so that no policy moves
// a sum over tiles.
struct WrappedUnit {
  UnitSpec spec;
  int first_unit = 0;             // of the model
  std::vector<int> first_params;  // by unit of the run: where its parameters begin in `spec`
};

// kModuleWrap: every unit alone. kSizeBased: runs of at least `min_num_params` parameters, the last
// one may be smaller; a tied embedding, used at both ends, stays alone. kNone: the whole model.
// Frozen units and units that are trained are not joined.
std::vector<WrappedUnit> wrap(const ModelSpec& model, WrapPolicy policy, int64_t min_num_params);

}  // namespace lockstep::layout
