// Dropout whose mask is a function, not a state: of (seed, place in the model, step, slot,
// element). It is drawn again in backward and never stored, and depends on neither threads nor
// ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "core/sharding/stage.h"

namespace lockstep::core {

class Dropout {
 public:
  // `place` names what is dropped: "layers.3/attention". Probability 0: nothing is.
  Dropout(double probability, uint64_t seed, const std::string& place);
  bool active() const { return threshold_ > 0; }
  // x *= mask / (1 - probability), in place on the slot's whole contiguous tensor. Forward and
  // backward alike.
  void apply(at::Tensor& x, const SlotInput& slot) const;

 private:
  uint64_t key_;
  uint32_t threshold_;
  float scale_;
};

}  // namespace lockstep::core
