// Matrices of a unit that are multiplied as one.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/sharding/unit.h"

namespace lockstep::core {

// Consecutive matrices [first, first + count) of a unit as one matrix, their rows stacked: a view
// where they lie back to back, else a copy.
at::Tensor stacked_weight(const UnitPart& unit, int first, int count);
// Their gradient dy^T x, written where the exchange will take it from.
void stacked_weight_grad(const UnitPart& unit, int first, int count, const at::Tensor& dy,
                         const at::Tensor& x);

}  // namespace lockstep::core
