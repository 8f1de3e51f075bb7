// Mixture of experts on plain memory: a router's choice, and rows on their way to experts and back.
// No Torch. T is float or Bf16; arithmetic is fp32, rounded once on store. A row that is sent to
// one of its experts has a place; places lie expert by expert. There is no twin for GPUs.
#pragma once

#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace lockstep::core {

inline constexpr int64_t kMostExperts = 4096;

// Requires: chosen <= experts <= kMostExperts.
struct RouterShape {
  int64_t experts, chosen;
  bool normed;  // the weights of a row's experts add up to 1
};

// By row: softmax of its logits [rows, experts]; its `chosen` likeliest experts, the first of equal
// ones before the others; their probabilities, which are their weights.
template <typename Place, typename T>
void route(const T* logits, int64_t rows, const RouterShape& shape, float* probabilities_out,
           int64_t* experts_out, float* weights_out);
// The logits' gradient, from that of the weights [rows, chosen] and (null: none) of every row's
// probabilities alike [experts].
template <typename Place, typename T>
void route_backward(const float* probabilities, const int64_t* experts, const float* weights,
                    const float* d_weights, const float* d_probabilities, int64_t rows,
                    const RouterShape& shape, T* d_logits_out);

// out = weights[source[p]] * s, for each place p of s [places, dim].
template <typename Place, typename T>
void weigh_places(const T* s, const float* weights, const int64_t* source, int64_t places,
                  int64_t dim, T* out);
// d, the gradient of out, becomes that of s; d_weights_out[source[p]] is the weight's.
template <typename Place, typename T>
void weigh_places_backward(T* d, const T* s, const float* weights, const int64_t* source,
                           int64_t places, int64_t dim, float* d_weights_out);

// Row r of out [rows, dim] = the sum of y's places place[r * chosen …], in this order.
template <typename Place, typename T>
void add_places(const T* y, const int64_t* place, int64_t rows, int64_t chosen, int64_t dim,
                T* out);

}  // namespace lockstep::core
