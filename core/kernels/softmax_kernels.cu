// One block a row.
#include "core/kernels/softmax_kernels.h"

#include <cfloat>
#include <cmath>

#include "core/kernels/cuda_math.cuh"

namespace lockstep::core {

using namespace cuda;

namespace {

// The columns of the keys that a row's query sees: [first, end). Runs [first_run, end_run) of the
// row have them.
struct Seen {
  int first, end, first_run, end_run;
  __device__ Seen(int64_t row, const ScoreBlock& b) {
    const int64_t own = b.first_query + row % b.rows / b.group - b.first_key;
    first = static_cast<int>(b.window > 0 && own >= b.window ? own - b.window + 1 : 0);
    end = static_cast<int>(own + 1 < b.keys ? own + 1 : b.keys);
    first_run = first / kRowRun;
    end_run = (end - 1) / kRowRun + 1;
  }
  __device__ bool has(int key) const { return key >= first && key < end; }
  __device__ bool has_run(int run) const { return run >= first_run && run < end_run; }
  __device__ int runs() const { return end_run - first_run; }
};

// After a sum over a block, some of whose threads have read what others will write.
template <int Threads>
__device__ void all_have_read() {
  if constexpr (Threads == kWarp) __syncthreads();
}

template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, blocks_of_40_registers(Threads))
    softmax_kernel(T* scores, ScoreBlock block, RowRuns runs, float scale) {
  T* row = scores + blockIdx.x * block.keys;
  const Seen seen(blockIdx.x, block);
  const float top = over_block<Threads>(seen.runs(), -INFINITY, Larger(), [=](int64_t i) {
    const int first = (seen.first_run + static_cast<int>(i)) * kRowRun;
    const Floats<kRowRun> x = runs.load(first, row, 0);
    float largest = -INFINITY;
    for (int k = 0; k < kRowRun; ++k)
      if (seen.has(first + k)) largest = Larger()(largest, x.at[k]);
    return largest;
  });
  const float sum = block_sum<Threads>(seen.runs(), [=](int64_t i) {
    const int first = (seen.first_run + static_cast<int>(i)) * kRowRun;
    const Floats<kRowRun> x = runs.load(first, row, 0);
    float of_run = 0;
    for (int k = 0; k < kRowRun; ++k)
      if (seen.has(first + k)) of_run += expf(scale * (x.at[k] - top));
    return of_run;
  });
  const float factor = 1.0f / sum;
  all_have_read<Threads>();
  for (int run = static_cast<int>(threadIdx.x); run * kRowRun < runs.size; run += Threads) {
    const int first = run * kRowRun;
    Floats<kRowRun> x{};
    if (seen.has_run(run)) x = runs.load(first, row, 0);
    for (int k = 0; k < kRowRun; ++k)
      x.at[k] = seen.has(first + k) ? expf(scale * (x.at[k] - top)) * factor : 0.0f;
    runs.store(row, first, x);
  }
}

template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, blocks_of_40_registers(Threads))
    softmax_backward_kernel(const T* p, T* dp, ScoreBlock block, RowRuns runs, float scale) {
  p += blockIdx.x * block.keys;
  dp += blockIdx.x * block.keys;
  const Seen seen(blockIdx.x, block);
  const float sum = block_sum<Threads>(seen.runs(), [=](int64_t i) {
    const int first = (seen.first_run + static_cast<int>(i)) * kRowRun;
    Packed<T, kRowRun> given[2];
    runs.load(first, {p, dp}, given);
    float of_run = 0;
    for (int k = 0; k < kRowRun; ++k)
      if (seen.has(first + k)) of_run += load(given[0].at[k]) * load(given[1].at[k]);
    return of_run;
  });
  all_have_read<Threads>();
  for (int run = static_cast<int>(threadIdx.x); run * kRowRun < runs.size; run += Threads) {
    const int first = run * kRowRun;
    Packed<T, kRowRun> given[2]{};
    if (seen.has_run(run)) runs.load(first, {p, dp}, given);
    Floats<kRowRun> out;
    for (int k = 0; k < kRowRun; ++k)
      out.at[k] =
          seen.has(first + k) ? scale * load(given[0].at[k]) * (load(given[1].at[k]) - sum) : 0.0f;
    runs.store(dp, first, out);
  }
}

// e^x for x <= 0 but for 2^-22 - x 2^-23 of it, and 0 where that is below 2^-126. Three
// instructions, where expf takes eleven: with those the loss would wait for its arithmetic, not for
// memory.
__device__ inline float quick_exp(float x) {
  const float power = x * 1.44269504f;
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(power));
  return result;
#else
  return exp2f(power);
#endif
}

// Of some logits: the largest, the sum of exp(logit - top), and with label smoothing that of them.
struct LogitSums {
  float top, sum;
  double logits;
};
// No logits. `top` is finite: it is subtracted from others.
constexpr LogitSums kNoLogits{-FLT_MAX, 0, 0};

__device__ LogitSums of_lane(const LogitSums& sums, int mask) {
  return {cuda::of_lane(sums.top, mask), cuda::of_lane(sums.sum, mask),
          __shfl_xor_sync(kAllLanes, sums.logits, mask)};
}

// The sum with the smaller top is scaled to the other's. Commutative to the bit: one factor is 1.
struct AddLogits {
  bool smoothed;
  __device__ LogitSums operator()(const LogitSums& a, const LogitSums& b) const {
    const bool first = a.top >= b.top;
    const float top = first ? a.top : b.top, lower = first ? b.top : a.top;
    const float whole = first ? a.sum : b.sum, scaled = first ? b.sum : a.sum;
    return {top, whole + scaled * quick_exp(lower - top), smoothed ? a.logits + b.logits : 0};
  }
};

// Of the run of logits from word `first` on: the exponentials are taken when the largest is known.
template <typename T>
__device__ LogitSums sums_of_run(const T* row, RowRuns runs, int first, bool smoothed) {
  const Floats<kRowRun> x = runs.load(first, row, -INFINITY);
  LogitSums sums = kNoLogits;
  for (const float logit : x.at) sums.top = Larger()(logit, sums.top);
  for (const float logit : x.at) sums.sum += quick_exp(logit - sums.top);
  if (smoothed)
    for (int k = 0; k < kRowRun; ++k)
      sums.logits += first + k < runs.size ? static_cast<double>(x.at[k]) : 0;
  return sums;
}

// A row is read once for its sums, and once for its gradient: that from its end on, for what was
// read last is what a cache still has. Several blocks a multiprocessor: one reads while another one
// adds.
template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, blocks_of_40_registers(Threads))
    cross_entropy_kernel(T* logits, const int64_t* labels, RowRuns runs, TokenLoss loss, float dy,
                         bool want_gradients, double* losses) {
  const double z_loss = loss.z_loss, smoothing = loss.label_smoothing;
  const double vocab = runs.size;
  T* row = logits + static_cast<int64_t>(blockIdx.x) * runs.size;
  const int64_t label = labels[blockIdx.x];
  const int run_count = (runs.size - 1) / kRowRun + 1, thread = static_cast<int>(threadIdx.x);
  if (label < 0) {  // the whole block
    if (thread == 0) losses[blockIdx.x] = 0;
    if (want_gradients)
      for (int run = thread; run < run_count; run += Threads) runs.store(row, run * kRowRun, {});
    return;
  }
  const float of_label = thread == 0 ? load(row[label]) : 0;
  const bool smoothed = smoothing > 0;
  const LogitSums all =
      over_block<Threads>(run_count, kNoLogits, AddLogits{smoothed}, [=](int64_t run) {
        return sums_of_run(row, runs, static_cast<int>(run) * kRowRun, smoothed);
      });
  all_have_read<Threads>();
  const double s = log(static_cast<double>(all.sum)) + static_cast<double>(all.top);
  if (thread == 0)
    losses[blockIdx.x] = s - (1.0 - smoothing) * static_cast<double>(of_label) -
                         smoothing * (all.logits / vocab) + z_loss * s * s;
  if (!want_gradients) return;
  const float factor = dy * static_cast<float>(1.0 + 2.0 * z_loss * s) / all.sum;
  const float spread = dy * static_cast<float>(smoothing / vocab);
  const float at_label = dy * static_cast<float>(1.0 - smoothing);
  for (int run = run_count - 1 - thread; run >= 0; run -= Threads) {
    const int first = run * kRowRun, label_in_run = static_cast<int>(label) - first;
    Floats<kRowRun> x = runs.load(first, row, 0);
    for (float& logit : x.at) logit = quick_exp(logit - all.top) * factor - spread;
    if (label_in_run >= 0 && label_in_run < kRowRun)
      for (int k = 0; k < kRowRun; ++k)
        if (k == label_in_run) x.at[k] -= at_label;
    runs.store(row, first, x);
  }
}

}  // namespace

template <typename Place, typename T>
void masked_softmax(T* scores, int64_t stacks, const ScoreBlock& block, float scale) {
  const auto rows = static_cast<unsigned>(stacks * block.rows);
  if (rows == 0) return;
  const RowRuns runs = row_runs(block.keys, block.keys, scores);
  by_width<512>(block.keys, [&](auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    launch<softmax_kernel<T, kThreads>>(rows, kThreads, scores, block, runs, scale);
  });
}

template <typename Place, typename T>
void masked_softmax_backward(const T* p, T* dp, int64_t stacks, const ScoreBlock& block,
                             float scale) {
  const auto rows = static_cast<unsigned>(stacks * block.rows);
  if (rows == 0) return;
  const RowRuns runs = row_runs(block.keys, block.keys, p, dp);
  by_width<512>(block.keys, [&](auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    launch<softmax_backward_kernel<T, kThreads>>(rows, kThreads, p, dp, block, runs, scale);
  });
}

template <typename Place, typename T>
void cross_entropy(T* logits, const int64_t* labels, int64_t rows, int64_t vocab,
                   const TokenLoss& loss, float dy, bool want_gradients, double* losses) {
  if (rows == 0) return;
  const RowRuns runs = row_runs(vocab, vocab, logits);
  by_width<512>(vocab, [&](auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    launch<cross_entropy_kernel<T, kThreads>>(static_cast<unsigned>(rows), kThreads, logits, labels,
                                              runs, loss, dy, want_gradients, losses);
  });
}

#define LOCKSTEP_INSTANTIATE(T)                                                                   \
  template void masked_softmax<OnCuda>(T*, int64_t, const ScoreBlock&, float);                    \
  template void masked_softmax_backward<OnCuda>(const T*, T*, int64_t, const ScoreBlock&, float); \
  template void cross_entropy<OnCuda>(T*, const int64_t*, int64_t, int64_t, const TokenLoss&,     \
                                      float, bool, double*);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core
