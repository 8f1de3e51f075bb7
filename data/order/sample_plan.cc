#include "data/order/sample_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/elementary.h"
#include "data/order/sample_order.h"

namespace lockstep::data {
namespace {

constexpr double kTemperedMax = 1 << 20;

// floor(a * b / c), where the product may need 128 bits.
int64_t share(int64_t a, int64_t b, int64_t c) {
  using Wide = unsigned __int128;
  return static_cast<int64_t>(static_cast<Wide>(a) * static_cast<Wide>(b) / static_cast<Wide>(c));
}

std::vector<int64_t> weights_of(const std::vector<SamplePlan::Source>& sources) {
  std::vector<int64_t> weights;
  for (const SamplePlan::Source& source : sources) weights.push_back(source.weight);
  return weights;
}

}  // namespace

Mixture::Mixture(std::vector<int64_t> weights) : weights_(std::move(weights)) {
  LOCKSTEP_CHECK(!weights_.empty(), "a mixture needs at least one source");
  int64_t divisor = 0;
  for (const int64_t weight : weights_) {
    LOCKSTEP_CHECK(weight >= 1 && weight <= kMaxWeight - sum_, "weight ", weight);
    sum_ += weight;
    divisor = std::gcd(divisor, weight);
  }
  for (int64_t& weight : weights_) weight /= divisor;
  sum_ /= divisor;
}

Mixture::Place Mixture::at(int64_t index) const {
  LOCKSTEP_CHECK(index >= 0 && index <= SampleOrder::kMaxSamples, "index ", index);
  // `left` is the index among those that no earlier source took in this round of P.
  const int64_t round = index / sum_;
  int64_t left = index % sum_, rest = sum_;
  size_t source = 0;
  for (; source + 1 < weights_.size(); ++source) {
    const int64_t weight = weights_[source];
    const int64_t taken = share(left, weight, rest);
    if (share(left + 1, weight, rest) > taken) return {source, round * weight + taken};
    left -= taken;
    rest -= weight;
  }
  return {source, round * weights_[source] + left};
}

std::vector<int64_t> Mixture::counts(int64_t index) const {
  LOCKSTEP_CHECK(index >= 0 && index <= SampleOrder::kMaxSamples, "index ", index);
  const int64_t round = index / sum_;
  int64_t left = index % sum_, rest = sum_;
  std::vector<int64_t> counts;
  for (const int64_t weight : weights_) {
    const int64_t taken = share(left, weight, rest);
    counts.push_back(round * weight + taken);
    left -= taken;
    rest -= weight;
  }
  LOCKSTEP_CHECK(left == 0 && rest == 0, left, " indices below ", index, " are of no source");
  return counts;
}

std::vector<int64_t> tempered(const std::vector<int64_t>& weights, double temperature) {
  LOCKSTEP_CHECK(temperature > 0 && !weights.empty(), "temperature ", temperature);
  if (temperature == 1) return weights;
  const auto largest = static_cast<double>(*std::max_element(weights.begin(), weights.end()));
  std::vector<int64_t> out;
  for (const int64_t weight : weights) {
    const double ratio = elementary::pow(static_cast<double>(weight) / largest, 1 / temperature);
    out.push_back(std::max<int64_t>(1, std::llround(ratio * kTemperedMax)));
  }
  return out;
}

SamplePlan::SamplePlan(std::vector<Source> sources)
    : sources_(std::move(sources)), mixture_(weights_of(sources_)) {
  for (const Source& source : sources_)
    LOCKSTEP_CHECK(source.sample_count >= 1, "a source of ", source.sample_count, " samples");
}

SamplePlan::Place SamplePlan::at(int64_t global_index) const {
  const Mixture::Place place = mixture_.at(global_index);
  LOCKSTEP_CHECK(place.source < sources_.size() && place.number >= 0, "index ", global_index,
                 " is number ", place.number, " of source ", place.source);
  const Source& source = sources_[place.source];
  const int64_t number = source.before + place.number;
  const int64_t epoch = number / source.sample_count;
  const SampleOrder order(source.sample_count, source.seed, epoch);
  return {place.source, epoch, order(number % source.sample_count)};
}

}  // namespace lockstep::data
