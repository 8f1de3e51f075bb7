// What a step was computed from, and what came of it: 64 bits for the weights of each unit of the
// model, and 64 for its summed gradient. They are sums over tiles modulo 2^64, alike for every
// world size, strategy and wrap policy. Runs of equal bits have equal digests; where two part, the
// first digest that differs says in which step, and in which unit (`lockstep replay`).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "layout/wrap.h"

namespace lockstep::core {

// By trained unit of the model, in its order; empty: none were taken.
struct StepDigests {
  std::vector<uint64_t> weights;    // before the update
  std::vector<uint64_t> gradients;  // over all slots, scaled, before clipping
};

// Those of one rank's own tiles. Any thread may add.
class UnitDigests {
 public:
  UnitDigests(const layout::ModelSpec& model, std::span<const layout::WrappedUnit> wrapped);

  void clear();
  // Of a tile that begins at the parameter's `flat_start`-th element; `unit` counts the wrapped
  // units that are trained.
  uint64_t seed(size_t unit, int param, int64_t flat_start) const;
  // Digests, by that seed, of elements of a parameter from one of its tiles on, to the end of a
  // tile or of the parameter.
  void add(size_t unit, int param, uint64_t weights, uint64_t gradients);
  // The weights' and then the gradients': those of all ranks add up.
  std::vector<uint64_t> sums() const { return {sums_.begin(), sums_.end()}; }

 private:
  struct Place {
    size_t digest;  // unit of the model, of those that are trained
    uint64_t seed;  // by the parameter's name
  };
  std::vector<std::vector<Place>> places_;  // by wrapped unit and parameter
  std::vector<std::atomic<uint64_t>> sums_;
};

}  // namespace lockstep::core
