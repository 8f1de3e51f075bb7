// The loss that spreads rows over experts (Switch Transformer, equations 4 to 6, as transformers'
// load_balancing_loss_func has it): of a slot, over all its rows and layers,
//   coefficient * E * sum over experts (share of the rows that chose it) * (its mean probability)
// Blocks record what their routers said in forward; the head takes the loss; blocks ask for its
// gradient in backward. A slot's own, so it does not depend on ranks. Thread: the training thread.
#pragma once

#include "core/model/experts.h"

namespace lockstep::core {

class RouterBalance {
 public:
  RouterBalance(double coefficient, int64_t layers, int64_t experts);
  // Of a layer's forward while training; a later one of the same layer replaces it.
  void record(int64_t layer, const Routing& routing);
  // The loss of what all layers recorded. `weight`: what its gradient is multiplied with.
  double close(double weight);
  // After close(): of every row's probabilities, in every layer. fp32 [E].
  const at::Tensor& gradient_E() const { return gradient_E_; }

 private:
  struct Layer {
    std::vector<int64_t> chosen;        // rows, by expert
    std::vector<double> probabilities;  // summed over rows
    int64_t rows = 0;
  };
  double coefficient_;
  std::vector<Layer> layers_;
  at::Tensor gradient_E_;
};

}  // namespace lockstep::core
