#include "core/model/router_balance.h"

#include <ATen/ops/zeros.h>

namespace lockstep::core {

RouterBalance::RouterBalance(double coefficient, int64_t layers, int64_t experts)
    : coefficient_(coefficient),
      layers_(static_cast<size_t>(layers)),
      gradient_E_(at::zeros({experts}, at::kFloat)) {}

void RouterBalance::record(int64_t layer, const Routing& routing) {
  Layer& of = layers_[static_cast<size_t>(layer)];
  const size_t experts = routing.first.size() - 1;
  of.rows = routing.probabilities_RE.size(0);
  of.chosen.clear();
  for (size_t e = 0; e < experts; ++e) of.chosen.push_back(routing.first[e + 1] - routing.first[e]);
  of.probabilities.assign(experts, 0.0);
  const float* p = routing.probabilities_RE.data_ptr<float>();
  for (int64_t r = 0; r < of.rows; ++r)
    for (double& sum : of.probabilities) sum += static_cast<double>(*p++);
}

double RouterBalance::close(double weight) {
  const auto experts = static_cast<size_t>(gradient_E_.numel());
  double rows = 0, sum = 0;
  for (const Layer& layer : layers_) rows += static_cast<double>(layer.rows);
  for (size_t e = 0; e < experts; ++e) {
    double chosen = 0, probability = 0;
    for (const Layer& layer : layers_) {
      chosen += static_cast<double>(layer.chosen[e]);
      probability += layer.probabilities[e];
    }
    sum += chosen / rows * (probability / rows);
    gradient_E_.data_ptr<float>()[e] = static_cast<float>(
        weight * coefficient_ * static_cast<double>(experts) * (chosen / rows) / rows);
  }
  return coefficient_ * static_cast<double>(experts) * sum;
}

}  // namespace lockstep::core
