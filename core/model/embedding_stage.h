// The first stage of a decoder: tokens, and learned positions, to vectors.
#pragma once

#include "core/model/dropout.h"
#include "core/sharding/stage.h"

namespace lockstep::core {

class EmbeddingStage : public Stage {
 public:
  // With a tied head the unit's gradient has the head's part already; see grad_sum. With
  // `positions`, parameter 1 is added: a row for each position. Tokens' rows are multiplied by
  // `scale`, rounded to their dtype.
  EmbeddingStage(bool positions, double scale, Dropout dropout)
      : positions_(positions), scale_(scale), dropout_(std::move(dropout)) {}
  at::Tensor forward(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                     bool keep) override;
  at::Tensor backward(UnitParts units, const at::Tensor& dy, const SlotInput& slot) override;

 private:
  void multiply(at::Tensor& rows) const;

  bool positions_;
  double scale_;
  Dropout dropout_;
};

}  // namespace lockstep::core
