#include "core/kernels/softmax_kernels.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/elementary.h"
#include "core/kernels/kernel_math.h"

namespace lockstep::core {
namespace {

LOCKSTEP_INLINE float largest(const float* x, int64_t n) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = x[0];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k];
  for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  float top = lanes[0];
  for (float lane : lanes) top = lane > top ? lane : top;
  return top;
}

// out[i] = exp(scale * (x[i] - top)), and their sum; out may be x.
LOCKSTEP_INLINE float exponentials(const float* x, float* out, int64_t n, float scale, float top) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
#pragma GCC ivdep
    for (int64_t k = 0; k < kLanes; ++k) {
      const float e = exp_fast(scale * (x[i + k] - top));
      out[i + k] = e;
      lanes[k] += e;
    }
  for (; i < n; ++i) {
    out[i] = exp_fast(scale * (x[i] - top));
    lanes[i % kLanes] += out[i];
  }
  return fold_lanes(lanes);
}

// The columns of the keys that row r's query sees: [first, end).
struct Seen {
  int64_t first, end;
};
inline Seen seen_by(const ScoreBlock& b, int64_t r) {
  const int64_t own = b.first_query + r / b.group - b.first_key;
  return {b.window > 0 ? std::max<int64_t>(0, own - b.window + 1) : 0, std::min(b.keys, own + 1)};
}

// Zeros what a query does not see.
LOCKSTEP_KERNEL clear_unseen(T* row, const Seen& seen, int64_t keys) {
  std::memset(static_cast<void*>(row), 0, static_cast<size_t>(seen.first) * sizeof(T));
  std::memset(static_cast<void*>(row + seen.end), 0,
              static_cast<size_t>(keys - seen.end) * sizeof(T));
}

// Memory for n elements of T as fp32; fp32 is worked on where it lies.
std::vector<float> row_of(const float*, int64_t) { return {}; }
std::vector<float> row_of(const Bf16*, int64_t n) {
  return std::vector<float>(static_cast<size_t>(n));
}

LOCKSTEP_KERNEL softmax_rows(T* scores, int64_t stacks, const ScoreBlock& b, float scale) {
  std::vector<float> row = row_of(scores, b.keys);
  for (int64_t r = 0; r < stacks * b.rows; ++r, scores += b.keys) {
    const Seen seen = seen_by(b, r % b.rows);
    const int64_t n = seen.end - seen.first;
    const float* x = widened(scores + seen.first, row.data(), n);
    float* out = room_for(scores + seen.first, row.data());
    const float factor = 1.0f / exponentials(x, out, n, scale, largest(x, n));
    for (int64_t k = 0; k < n; ++k) out[k] *= factor;
    narrowed(scores + seen.first, out, n);
    clear_unseen(scores, seen, b.keys);
  }
}

LOCKSTEP_KERNEL softmax_rows_back(const T* p, T* dp, int64_t stacks, const ScoreBlock& b,
                                  float scale) {
  float p_run[kRun], dp_run[kRun];
  for (int64_t r = 0; r < stacks * b.rows; ++r, p += b.keys, dp += b.keys) {
    const Seen seen = seen_by(b, r % b.rows);
    float lanes[kLanes] = {};
    for (int64_t i = seen.first; i < seen.end; i += kRun) {
      const int64_t n = std::min(kRun, seen.end - i);
      const float *pf = widened(p + i, p_run, n), *d = widened(dp + i, dp_run, n);
      add_to_lanes(lanes, n, [&](int64_t k) { return pf[k] * d[k]; });
    }
    const float sum = fold_lanes(lanes);
    for (int64_t i = seen.first; i < seen.end; i += kRun) {
      const int64_t n = std::min(kRun, seen.end - i);
      const float *pf = widened(p + i, p_run, n), *d = widened(dp + i, dp_run, n);
      float* out = room_for(dp + i, dp_run);
#pragma GCC ivdep
      for (int64_t k = 0; k < n; ++k) out[k] = scale * pf[k] * (d[k] - sum);
      narrowed(dp + i, out, n);
    }
    clear_unseen(dp, seen, b.keys);
  }
}

LOCKSTEP_KERNEL cross_entropy_rows(T* logits, const int64_t* labels, int64_t rows, int64_t vocab,
                                   const TokenLoss& loss, float dy, bool want_gradients,
                                   double* losses) {
  std::vector<float> row = row_of(logits, vocab);
  const double smoothing = loss.label_smoothing;
  for (int64_t r = 0; r < rows; ++r, logits += vocab) {
    const int64_t label = labels[r];
    losses[r] = 0;
    if (label < 0) {
      if (want_gradients)
        std::memset(static_cast<void*>(logits), 0, static_cast<size_t>(vocab) * sizeof(T));
      continue;
    }
    const float* x = widened(logits, row.data(), vocab);
    float* out = room_for(logits, row.data());
    const float top = largest(x, vocab), at_label = x[label];
    double mean = 0;
    if (smoothing > 0) {
      float lanes[kLanes] = {};
      add_to_lanes(lanes, vocab, [&](int64_t k) { return x[k] - top; });
      mean = static_cast<double>(fold_lanes(lanes)) / static_cast<double>(vocab) +
             static_cast<double>(top);
    }
    const float sum = exponentials(x, out, vocab, 1.0f, top);
    const double s = elementary::log(static_cast<double>(sum)) + static_cast<double>(top);
    losses[r] = s - (1.0 - smoothing) * static_cast<double>(at_label) - smoothing * mean +
                loss.z_loss * s * s;
    if (!want_gradients) continue;
    const float factor = dy * static_cast<float>(1.0 + 2.0 * loss.z_loss * s) / sum;
    const float spread = dy * static_cast<float>(smoothing / static_cast<double>(vocab));
    for (int64_t k = 0; k < vocab; ++k) out[k] = out[k] * factor - spread;
    out[label] -= dy * static_cast<float>(1.0 - smoothing);
    narrowed(logits, out, vocab);
  }
}

}  // namespace

#define LOCKSTEP_INSTANTIATE(T)                                                              \
  LOCKSTEP_CLONED masked_softmax<OnCpu>(T * scores, int64_t stacks, const ScoreBlock& block, \
                                        float scale) {                                       \
    softmax_rows(scores, stacks, block, scale);                                              \
  }                                                                                          \
  LOCKSTEP_CLONED masked_softmax_backward<OnCpu>(const T* p, T* dp, int64_t stacks,          \
                                                 const ScoreBlock& block, float scale) {     \
    softmax_rows_back(p, dp, stacks, block, scale);                                          \
  }                                                                                          \
  LOCKSTEP_CLONED cross_entropy<OnCpu>(T * logits, const int64_t* labels, int64_t rows,      \
                                       int64_t vocab, const TokenLoss& loss, float dy,       \
                                       bool want_gradients, double* losses) {                \
    cross_entropy_rows(logits, labels, rows, vocab, loss, dy, want_gradients, losses);       \
  }
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core
