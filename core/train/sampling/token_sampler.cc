#include "core/train/sampling/token_sampler.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/hash.h"
#include "core/kernels/kernel_math.h"

namespace lockstep::core {
namespace {

using Ids = std::vector<int64_t>;

constexpr double kColdest = 1e-6;  // below it the likeliest token is the only one

// weights_out = exp((logit - top) / temperature).
LOCKSTEP_VECTOR_CLONES void token_weights(const float* logits, int64_t n, float top, float factor,
                                          float* weights_out) {
  for (int64_t i = 0; i < n; ++i) weights_out[i] = exp_fast((logits[i] - top) * factor);
}

// The `count` likeliest of `ids`, the likeliest first.
Ids likeliest(std::span<const float> logits, Ids ids, size_t count) {
  const auto likelier = [&](int64_t a, int64_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  count = std::min(count, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    likelier);
  ids.resize(count);
  return ids;
}

double total_of(const std::vector<float>& weights, const Ids& ids) {
  double total = 0;
  for (const int64_t id : ids) total += static_cast<double>(weights[static_cast<size_t>(id)]);
  return total;
}

// The fewest of `ids`, the likeliest ones, whose weights reach `share` of all of them.
Ids nucleus(std::span<const float> logits, const std::vector<float>& weights, const Ids& ids,
            double share) {
  const double wanted = share * total_of(weights, ids);
  for (size_t count = 64;; count *= 8) {  // most often a few tokens have nearly all of it
    Ids first = likeliest(logits, ids, count);
    double sum = 0;
    for (size_t i = 0; i < first.size(); ++i) {
      sum += static_cast<double>(weights[static_cast<size_t>(first[i])]);
      if (sum < wanted) continue;
      first.resize(i + 1);
      return first;
    }
    if (first.size() == ids.size()) return first;
  }
}

}  // namespace

int64_t draw_token(std::span<const float> logits, const Sampling& s, double uniform) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (s.temperature < kColdest) return best - logits.begin();
  std::vector<float> weights(logits.size());
  token_weights(logits.data(), std::ssize(logits), *best, static_cast<float>(1.0 / s.temperature),
                weights.data());
  Ids ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  if (s.top_k > 0 && s.top_k < std::ssize(ids))
    ids = likeliest(logits, std::move(ids), static_cast<size_t>(s.top_k));
  if (s.top_p < 1) ids = nucleus(logits, weights, ids, s.top_p);
  double left = uniform * total_of(weights, ids);
  for (const int64_t id : ids)
    if ((left -= static_cast<double>(weights[static_cast<size_t>(id)])) < 0) return id;
  return ids.back();
}

TokenStream::TokenStream(uint64_t seed, std::span<const int64_t> prompt, uint64_t equal_before)
    : key_(purpose_key(seed, "generate")), stream_(xxh3_64(std::as_bytes(prompt), equal_before)) {}

double TokenStream::uniform(int64_t n) const {
  const Philox4 drawn = philox(key_, stream_, static_cast<uint64_t>(n));
  const uint64_t bits = (uint64_t{drawn.word[0]} << 32 | drawn.word[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace lockstep::core
