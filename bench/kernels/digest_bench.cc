// CPU seconds that digests take (docs/AUDIT.md): the update of a shard as Optimizer makes it, a few
// tiles at a time, with the digests of its weights and gradients and without them, in turns; and a
// fingerprint of what no cache has. One thread.
//
//   digest_bench [elements] [rounds]
//
// Prints JSON, in nanoseconds of the process's CPU clock for an element, medians of the rounds.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <vector>

#include "core/kernels/digest_kernels.h"
#include "core/kernels/kernel_table.h"
#include "layout/model_spec.h"

namespace lockstep::core {
namespace {

constexpr int64_t kDigestTiles = 4;  // as core/optim/optimizer.cc takes them
uint64_t sum = 0;                    // so that no compiler leaves a digest out

std::span<const std::byte> bytes_of(const at::Tensor& t, int64_t at, int64_t n) {
  return std::as_bytes(std::span(t.const_data_ptr<float>() + at, static_cast<size_t>(n)));
}

void update(const at::Tensor& p, const at::Tensor& m, const at::Tensor& v, const at::Tensor& g,
            bool digests) {
  const AdamWStep step = AdamWStep::create(1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 3);
  const int64_t run = kDigestTiles * layout::kTileElements;
  for (int64_t at = 0; at < p.numel(); at += run) {
    const int64_t n = std::min(run, p.numel() - at);
    if (digests)
      for (const at::Tensor& t : {p, g})
        sum += digest_of_tiles(bytes_of(t, at, n), sizeof(float), static_cast<uint64_t>(at));
    const AdamWRun<float> update{g.data_ptr<float>() + at,
                                 p.data_ptr<float>() + at,
                                 m.data_ptr<float>() + at,
                                 v.data_ptr<float>() + at,
                                 nullptr,
                                 n,
                                 {},
                                 true};
    kernels_on(at::kCPU).adamw_update(step, std::span(&update, 1));
  }
}

double cpu_seconds_of(const std::function<void()>& run) {
  const std::clock_t before = std::clock();
  run();
  return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(int64_t n, int rounds) {
  at::set_num_threads(1);
  const at::Tensor p = at::randn({n}), m = at::zeros({n}), v = at::zeros({n}), g = at::randn({n});
  std::vector<double> with, without, cold;
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    const double seconds[] = {
        cpu_seconds_of([&] { update(p, m, v, g, true); }),
        cpu_seconds_of([&] { update(p, m, v, g, false); }),
        cpu_seconds_of([&] { sum += digest_of_tiles(bytes_of(p, 0, n), sizeof(float), 0); })};
    if (round == 0) continue;
    with.push_back(seconds[0]), without.push_back(seconds[1]), cold.push_back(seconds[2]);
  }
  const double ns = 1e9 / static_cast<double>(n);
  std::printf(
      "{\"update_ns\": %.4f, \"digests_ns\": %.4f, \"fingerprint_ns\": %.4f, \"sum\": %llu}\n",
      ns * median(without), ns * (median(with) - median(without)), ns * median(cold),
      static_cast<unsigned long long>(sum));
}

}  // namespace
}  // namespace lockstep::core

int main(int argc, char** argv) {
  const int64_t elements = argc > 1 ? std::atoll(argv[1]) : 16 << 20;
  lockstep::core::run(elements, argc > 2 ? std::atoi(argv[2]) : 15);
}
