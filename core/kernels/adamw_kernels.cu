// The arithmetic is adamw_kernels.cc's, operation by operation: nvcc contracts nothing
// (--fmad=false), and its division and square root are correctly rounded.
#include "core/kernels/adamw_kernels.h"

#include <algorithm>
#include <vector>

#include "base/hash.h"
#include "core/kernels/cuda_math.cuh"
#include "layout/model_spec.h"

namespace lockstep::core {

using namespace cuda;

namespace {

constexpr int kLanes = 8, kTileThreads = 64, kRun = kRunOf<float>;
// Of a thread that adds leaves, and of its warp, which is a block.
constexpr int kThreadLeaves = 16, kBlockLeaves = kWarp * kThreadLeaves;

// What all elements of a step share.
struct Update {
  AdamWStep step;
  float kept, step_size, rest1, rest2;

  explicit Update(const AdamWStep& s)
      : step(s),
        kept(1.0f - s.lr * s.weight_decay),
        step_size(s.lr / s.correction1),
        rest1(1.0f - s.beta1),
        rest2(1.0f - s.beta2) {}

  // `keep`: what stays of a weight that decays, or 1.
  __device__ void apply(float keep, float grad, float& master, float& m, float& v) const {
    const float g = grad * step.clip;
    const float m_new = step.beta1 * m + rest1 * g;
    const float v_new = step.beta2 * v + rest2 * g * g;
    m = m_new;
    v = v_new;
    const float denominator = sqrtf(v_new) / step.correction2 + step.eps;
    master = master * keep - step_size * (m_new / denominator);
  }
};

// What a launch works on, as an argument of its kernel: with CUDA 12.1 and later a kernel takes
// 32,764 bytes of arguments. A work has the blocks from its first_block on.
constexpr int kMostRuns = 352, kMostSubtrees = 1024;

template <typename Work>
__device__ const Work& work_of_block(const Work* work, int count) {
  int last = 0;  // that begins at this block or before it
  for (int end = count; end - last > 1;) {
    const int middle = (last + end) / 2;
    (work[middle].first_block <= blockIdx.x ? last : end) = middle;
  }
  return work[last];
}

// A block a tile.
template <typename Moment>
struct Batch {
  struct Work {
    AdamWRun<Moment> run;
    int64_t first_block;
    bool aligned;
  };
  Work work[kMostRuns];
  int count = 0;
};
static_assert(sizeof(Batch<float>) + sizeof(Update) <= 32764);

// f(a grad, a weight, …, and the copy of the weight, where there is one) for the run's elements.
template <typename Moment, typename F>
__device__ void each_element(const AdamWRun<Moment>& r, const Run<kRun>& run, const F& f) {
  if (r.copy == nullptr) return each_of(run, f, r.grad, r.master, r.m, r.v);
  each_of(
      run,
      [&f](float g, float& weight, float& m, float& v, float& copy) {
        f(g, weight, m, v);
        copy = weight;
      },
      r.grad, r.master, r.m, r.v, r.copy);
}

// The elements of a tile that are this thread's: a run behind every blockDim.x runs.
__device__ void update_tile(const Update& update, const Batch<float>::Work& work, int64_t at) {
  const AdamWRun<float>& r = work.run;
  const float keep = r.decays ? update.kept : 1.0f;
  const int64_t end = at + layout::kTileElements < r.n ? at + layout::kTileElements : r.n;
  for (int64_t i = at + threadIdx.x * kRun; i < end; i += kElementThreads * kRun)
    each_element(
        r, run_from<kRun>(i, end, work.aligned),
        [&](float g, float& weight, float& m, float& v) { update.apply(keep, g, weight, m, v); });
}

// Four words side by side, chosen without an address.
struct Words {
  uint32_t at[kRun];
  __device__ uint32_t operator[](int k) const {
    return k < 2 ? (k == 0 ? at[0] : at[1]) : (k == 2 ? at[2] : at[3]);
  }
};

// A thread draws for four counters side by side: for a run of elements by each of their words.
__device__ void update_tile(const Update& update, const Batch<Bf16>::Work& work, int64_t at) {
  constexpr int kRunLanes = static_cast<int>(kMomentRun) / 4, kThreads = kRunLanes / kRun;
  static_assert(kElementThreads / kThreads * kMomentRun == layout::kTileElements);
  const AdamWRun<Bf16>& r = work.run;
  const float keep = r.decays ? update.kept : 1.0f;
  const int lane = static_cast<int>(threadIdx.x) % kThreads * kRun;
  const int64_t begin = at + threadIdx.x / kThreads * kMomentRun;
  if (begin >= r.n) return;
  Philox4 random[kRun];
  for (int k = 0; k < kRun; ++k)
    random[k] = philox(r.draw.key, static_cast<uint64_t>(update.step.t),
                       static_cast<uint64_t>((r.draw.first + begin) / 4 + lane + k));
  const auto by_word = [&](auto word) {
    constexpr int w = word();
    const int64_t i = begin + w * kRunLanes + lane;
    if (i >= r.n) return;
    const Words words{{random[0].word[w], random[1].word[w], random[2].word[w], random[3].word[w]}};
    int k = 0;
    each_element(r, run_from<kRun>(i, r.n, work.aligned),
                 [&](float g, float& weight, float& m, float& v) {
                   const uint32_t drawn = words[k++];
                   update.apply(keep, g, weight, m, v);
                   m = bf16_to_float(stochastic_bf16(m, drawn));
                   v = bf16_to_float(stochastic_bf16(v, drawn >> 16));
                 });
  };
  by_word(std::integral_constant<int, 0>());
  by_word(std::integral_constant<int, 1>());
  by_word(std::integral_constant<int, 2>());
  by_word(std::integral_constant<int, 3>());
}

// 64 registers at most, for the elements under way.
template <typename Moment>
__global__ void __launch_bounds__(kElementThreads, blocks_to_fill(kElementThreads) / 2)
    adamw_kernel(Update update, Batch<Moment> batch) {
  const typename Batch<Moment>::Work work = work_of_block(batch.work, batch.count);
  update_tile(update, work, (blockIdx.x - work.first_block) * layout::kTileElements);
}

// Eight threads a tile, one for each lane of the CPU's sum; they meet in its order. A thread has
// kAhead elements under way, and blocks are small: a rank may have few tiles. 64 registers at most.
__global__ void __launch_bounds__(kTileThreads, blocks_to_fill(kTileThreads) / 2)
    square_tiles_kernel(float* grad, float scale, int64_t tiles, double* sums_out) {
  constexpr int64_t kTile = layout::kTileElements;
  constexpr int kAhead = 32;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t tile = thread / kLanes;
  double sum = 0;
  if (tile < tiles) {
    float* mine = grad + tile * kTile + thread % kLanes;
    for (int64_t i = 0; i < kTile; i += kAhead * kLanes, mine += kAhead * kLanes) {
      float ahead[kAhead];
      for (int k = 0; k < kAhead; ++k) ahead[k] = mine[k * kLanes];
      for (int k = 0; k < kAhead; ++k) {
        const float g = ahead[k] * scale;
        mine[k * kLanes] = g;
        sum += static_cast<double>(g) * static_cast<double>(g);
      }
    }
  }
  // l0+l4, l1+l5, …; then (l0+l4)+(l2+l6) and (l1+l5)+(l3+l7); then both.
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (tile < tiles && thread % kLanes == 0) sums_out[tile] = sum;
}

// A block adds kBlockLeaves at most: a longer subtree has several.
struct Subtrees {
  struct Work {
    layout::SlotRun run;
    int64_t first_block;
  };
  Work work[kMostSubtrees];
  int count = 0;
};

// The balanced sum of N numbers.
template <int N>
__device__ double balanced(const double* x) {
  if constexpr (N == 1) {
    return x[0];
  } else {
    return balanced<N / 2>(x) + balanced<N / 2>(x + N / 2);
  }
}

// A thread adds neighbours, then the threads their sums. Behind a subtree's end are zeros, which
// change no sum.
__global__ void __launch_bounds__(kWarp, blocks_to_fill(kWarp))
    sum_subtrees_kernel(const double* leaves, Subtrees subtrees, double* sums_out) {
  const Subtrees::Work& work = work_of_block(subtrees.work, subtrees.count);
  const int64_t at = (blockIdx.x - work.first_block) * kBlockLeaves + threadIdx.x * kThreadLeaves;
  double mine[kThreadLeaves];
  for (int k = 0; k < kThreadLeaves; ++k)
    mine[k] = at + k < work.run.count ? leaves[work.run.first + at + k] : 0.0;
  double sum = balanced<kThreadLeaves>(mine);
  for (int distance = 1; distance < kWarp; distance *= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (threadIdx.x == 0) sums_out[blockIdx.x] = sum;
}

}  // namespace

template <typename Place, typename Moment>
void adamw_update(const AdamWStep& step, std::span<const AdamWRun<Moment>> runs) {
  constexpr int64_t kTile = layout::kTileElements;
  const Update update(step);
  for (auto next = runs.begin(); next != runs.end();) {
    Batch<Moment> batch;
    int64_t tiles = 0;
    for (; next != runs.end() && batch.count < kMostRuns; ++next) {
      if (next->n == 0) continue;
      const bool in_runs = aligned<kRun>(next->grad, next->master) &&
                           aligned<kRun>(next->m, next->v) && aligned<kRun>(next->copy);
      batch.work[batch.count++] = {*next, tiles, in_runs};
      tiles += (next->n + kTile - 1) / kTile;
    }
    if (tiles > 0)
      launch<adamw_kernel<Moment>>(static_cast<unsigned>(tiles), kElementThreads, update, batch);
  }
}
template void adamw_update<OnCuda>(const AdamWStep&, std::span<const AdamWRun<float>>);
template void adamw_update<OnCuda>(const AdamWStep&, std::span<const AdamWRun<Bf16>>);

template <>
void scale_and_square_tiles<OnCuda>(float* grad, float scale, int64_t tiles, double* sums_out) {
  if (tiles == 0) return;
  launch<square_tiles_kernel>(blocks_for(tiles * kLanes, kTileThreads), kTileThreads, grad, scale,
                              tiles, sums_out);
}

// The sums of the blocks of a longer subtree are the leaves of the next launch.
template <>
void sum_subtrees<OnCuda>(const double* leaves, std::span<const layout::SlotRun> runs,
                          double* sums_out) {
  while (!runs.empty()) {
    const auto now = runs.first(std::min<size_t>(runs.size(), kMostSubtrees));
    runs = runs.subspan(now.size());
    Subtrees subtrees;
    std::vector<layout::SlotRun> of_blocks;
    int64_t blocks = 0;
    for (const layout::SlotRun& run : now) {
      subtrees.work[subtrees.count++] = {run, blocks};
      of_blocks.push_back({blocks, (run.count + kBlockLeaves - 1) / kBlockLeaves});
      blocks = of_blocks.back().end();
    }
    const auto add = [&](double* block_sums) {
      launch<sum_subtrees_kernel>(static_cast<unsigned>(blocks), kWarp, leaves, subtrees,
                                  block_sums);
    };
    if (blocks == subtrees.count) {
      add(sums_out);
    } else {
      const Scratch scratch(static_cast<size_t>(blocks) * sizeof(double));
      add(scratch.as<double>());
      sum_subtrees<OnCuda>(scratch.as<double>(), of_blocks, sums_out);
    }
    sums_out += subtrees.count;
  }
}

}  // namespace lockstep::core
