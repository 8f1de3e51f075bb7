#include "core/kernels/expert_kernels.h"

#include <algorithm>

#include "core/kernels/kernel_math.h"

namespace lockstep::core {
namespace {

LOCKSTEP_KERNEL softmax_of(const T* logits, int64_t n, float* p) {
  float top = -3.0e38f;
  for (int64_t i = 0; i < n; i += kRun) {
    const int64_t m = std::min(kRun, n - i);
    float run[kRun];
    const float* x = widened(logits + i, run, m);
    for (int64_t k = 0; k < m; ++k) {
      p[i + k] = x[k];
      top = x[k] > top ? x[k] : top;
    }
  }
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) p[i] = exp_fast(p[i] - top);
  add_to_lanes(lanes, n, [&](int64_t k) { return p[k]; });
  const float factor = 1.0f / fold_lanes(lanes);
  for (int64_t i = 0; i < n; ++i) p[i] *= factor;
}

LOCKSTEP_KERNEL route_rows(const T* logits, int64_t rows, const RouterShape& s, float* p,
                           int64_t* experts, float* weights) {
  for (int64_t r = 0; r < rows; ++r) {
    softmax_of(logits, s.experts, p);
    float sum = 0;
    for (int64_t k = 0; k < s.chosen; ++k) {
      int64_t best = -1;
      for (int64_t e = 0; e < s.experts; ++e)
        if ((best < 0 || p[e] > p[best]) && std::find(experts, experts + k, e) == experts + k)
          best = e;
      experts[k] = best;
      weights[k] = p[best];
      sum += p[best];
    }
    if (s.normed)
      for (int64_t k = 0; k < s.chosen; ++k) weights[k] /= sum;
    logits += s.experts;
    p += s.experts;
    experts += s.chosen;
    weights += s.chosen;
  }
}

// Normed weights are w = p / sum(p), so dp = (dw - sum(dw w)) / sum(p).
LOCKSTEP_KERNEL route_rows_back(const float* p, const int64_t* experts, const float* weights,
                                const float* d_weights, const float* d_p, int64_t rows,
                                const RouterShape& s, T* out, float* d) {
  for (int64_t r = 0; r < rows; ++r) {
    float sum = 1, common = 0;
    if (s.normed) {
      sum = 0;
      for (int64_t k = 0; k < s.chosen; ++k) {
        sum += p[experts[k]];
        common += d_weights[k] * weights[k];
      }
    }
    for (int64_t e = 0; e < s.experts; ++e) d[e] = d_p == nullptr ? 0.0f : d_p[e];
    for (int64_t k = 0; k < s.chosen; ++k) d[experts[k]] += (d_weights[k] - common) / sum;
    float lanes[kLanes] = {};
    add_to_lanes(lanes, s.experts, [&](int64_t e) { return p[e] * d[e]; });
    const float mean = fold_lanes(lanes);
    for (int64_t e = 0; e < s.experts; ++e) d[e] = p[e] * (d[e] - mean);
    for (int64_t i = 0; i < s.experts; i += kRun) {
      const int64_t n = std::min(kRun, s.experts - i);
      float run[kRun];
      float* to = room_for(out + i, run);
      std::copy_n(d + i, n, to);
      narrowed(out + i, to, n);
    }
    p += s.experts;
    experts += s.chosen;
    weights += s.chosen;
    d_weights += s.chosen;
    out += s.experts;
  }
}

LOCKSTEP_KERNEL weigh(const T* s, const float* weights, const int64_t* source, int64_t places,
                      int64_t dim, T* out) {
  float s_run[kRun], out_run[kRun];
  for (int64_t p = 0; p < places; ++p, s += dim, out += dim) {
    const float w = weights[source[p]];
    for (int64_t i = 0; i < dim; i += kRun) {
      const int64_t n = std::min(kRun, dim - i);
      const float* x = widened(s + i, s_run, n);
      float* y = room_for(out + i, out_run);
#pragma GCC ivdep
      for (int64_t k = 0; k < n; ++k) y[k] = w * x[k];
      narrowed(out + i, y, n);
    }
  }
}

LOCKSTEP_KERNEL weigh_back(T* d, const T* s, const float* weights, const int64_t* source,
                           int64_t places, int64_t dim, float* d_weights) {
  float d_run[kRun], s_run[kRun], out_run[kRun];
  for (int64_t p = 0; p < places; ++p, s += dim, d += dim) {
    const float w = weights[source[p]];
    float lanes[kLanes] = {};
    for (int64_t i = 0; i < dim; i += kRun) {
      const int64_t n = std::min(kRun, dim - i);
      const float *df = widened(d + i, d_run, n), *x = widened(s + i, s_run, n);
      add_to_lanes(lanes, n, [&](int64_t k) { return df[k] * x[k]; });
      float* y = room_for(d + i, out_run);
#pragma GCC ivdep
      for (int64_t k = 0; k < n; ++k) y[k] = w * df[k];
      narrowed(d + i, y, n);
    }
    d_weights[source[p]] = fold_lanes(lanes);
  }
}

LOCKSTEP_KERNEL add_rows_of(const T* y, const int64_t* place, int64_t rows, int64_t chosen,
                            int64_t dim, T* out) {
  float sum[kRun], y_run[kRun], out_run[kRun];
  for (int64_t r = 0; r < rows; ++r, place += chosen, out += dim)
    for (int64_t i = 0; i < dim; i += kRun) {
      const int64_t n = std::min(kRun, dim - i);
      std::fill_n(sum, n, 0.0f);
      for (int64_t k = 0; k < chosen; ++k) {
        const float* x = widened(y + place[k] * dim + i, y_run, n);
        for (int64_t c = 0; c < n; ++c) sum[c] += x[c];
      }
      float* to = room_for(out + i, out_run);
      std::copy_n(sum, n, to);
      narrowed(out + i, to, n);
    }
}

}  // namespace

#define LOCKSTEP_INSTANTIATE(T)                                                                    \
  LOCKSTEP_CLONED route<OnCpu>(const T* logits, int64_t rows, const RouterShape& shape,            \
                               float* probabilities, int64_t* experts, float* weights) {           \
    route_rows(logits, rows, shape, probabilities, experts, weights);                              \
  }                                                                                                \
  LOCKSTEP_CLONED route_backward<OnCpu>(const float* probabilities, const int64_t* experts,        \
                                        const float* weights, const float* d_weights,              \
                                        const float* d_probabilities, int64_t rows,                \
                                        const RouterShape& shape, T* d_logits) {                   \
    float d[kMostExperts];                                                                         \
    route_rows_back(probabilities, experts, weights, d_weights, d_probabilities, rows, shape,      \
                    d_logits, d);                                                                  \
  }                                                                                                \
  LOCKSTEP_CLONED weigh_places<OnCpu>(const T* s, const float* weights, const int64_t* source,     \
                                      int64_t places, int64_t dim, T* out) {                       \
    weigh(s, weights, source, places, dim, out);                                                   \
  }                                                                                                \
  LOCKSTEP_CLONED weigh_places_backward<OnCpu>(T * d, const T* s, const float* weights,            \
                                               const int64_t* source, int64_t places, int64_t dim, \
                                               float* d_weights) {                                 \
    weigh_back(d, s, weights, source, places, dim, d_weights);                                     \
  }                                                                                                \
  LOCKSTEP_CLONED add_places<OnCpu>(const T* y, const int64_t* place, int64_t rows,                \
                                    int64_t chosen, int64_t dim, T* out) {                         \
    add_rows_of(y, place, rows, chosen, dim, out);                                                 \
  }
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core
