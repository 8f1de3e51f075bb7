#include "data/order/sample_order.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/hash.h"

namespace lockstep::data {

namespace {
constexpr int kMinBits = 8;
constexpr uint64_t kGolden =
    0x9e3779b97f4a7c15ULL;  // SplitMix64's increment: odd, so multiples are distinct
constexpr uint64_t mask_of(int bits) { return (uint64_t{1} << bits) - 1; }
}  // namespace

SampleOrder::SampleOrder(int64_t sample_count, uint64_t seed, int64_t epoch)
    : sample_count_(sample_count) {
  LOCKSTEP_CHECK(sample_count >= 1 && sample_count <= kMaxSamples, "sample_count ", sample_count);
  LOCKSTEP_CHECK(epoch >= 0, "epoch ", epoch);
  const int bits = std::max<int>(kMinBits, std::bit_width(static_cast<uint64_t>(sample_count - 1)));
  left_bits_ = bits / 2;
  right_bits_ = bits - left_bits_;
  LOCKSTEP_CHECK(left_bits_ <= right_bits_ && right_bits_ <= left_bits_ + 1 &&
                     static_cast<uint64_t>(sample_count - 1) <= mask_of(bits),
                 sample_count, " samples in halves of ", left_bits_, " and ", right_bits_, " bits");
  const uint64_t key =
      mix64(purpose_key(seed, "sample_order") + kGolden * (static_cast<uint64_t>(epoch) + 1));
  for (int r = 0; r < kRounds; ++r)
    round_keys_[static_cast<size_t>(r)] = mix64(key + kGolden * (static_cast<uint64_t>(r) + 1));
}

uint64_t SampleOrder::permute(uint64_t x) const {
  // Each round replaces (left, right) by (right, left ^ F(right)); the widths change places with
  // them.
  int left_bits = left_bits_, right_bits = right_bits_;
  uint64_t left = x >> right_bits, right = x & mask_of(right_bits);
  for (uint64_t key : round_keys_) {
    const uint64_t mixed = (left ^ mix64(right + key)) & mask_of(left_bits);
    left = right;
    right = mixed;
    std::swap(left_bits, right_bits);
  }
  LOCKSTEP_CHECK(left_bits == left_bits_ && left <= mask_of(left_bits), "an even number of rounds");
  return (left << right_bits) | right;
}

int64_t SampleOrder::operator()(int64_t position) const {
  LOCKSTEP_CHECK(position >= 0 && position < sample_count_, "position ", position, " of ",
                 sample_count_);
  auto x = static_cast<uint64_t>(position);
  do {
    x = permute(x);
  } while (x >= static_cast<uint64_t>(sample_count_));
  return static_cast<int64_t>(x);
}

}  // namespace lockstep::data
