// Sums modulo 65535 commute with swapping the bytes of a 16-bit word (a multiplication by 256), so
// little-endian words are added, many at a time, and the two sums are swapped at the end.
// Highway includes this file once for each instruction set; Fletcher32::add calls the widest that
// the CPU has.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "checkpoint/codec/fletcher32.cc"
#include "checkpoint/codec/fletcher32.h"

#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace lockstep::checkpoint {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

uint64_t fold(uint64_t sum) {  // mod 65535; only 0 gives 0
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

// Whole rows of two vectors' lanes; the rest of `bytes` is what it returns.
std::span<const std::byte> add_rows(std::span<const std::byte> bytes, uint64_t& sum1,
                                    uint64_t& sum2) {
  constexpr size_t kRows = 256;  // second sums stay below 2^32: 65535 * 256 * 257 / 2
  const hn::ScalableTag<uint32_t> tag;
  const hn::Rebind<uint16_t, decltype(tag)> half_tag;
  const size_t width = hn::Lanes(tag), lanes = 2 * width;
  while (bytes.size() >= 2 * lanes) {
    const size_t rows = std::min(kRows, bytes.size() / (2 * lanes));
    const auto* in = reinterpret_cast<const uint16_t*>(bytes.data());
    // Of each lane: the sum of its words, and the sum of that sum after each row.
    auto a0 = hn::Zero(tag), a1 = a0, b0 = a0, b1 = a0;
    for (size_t row = 0; row < rows; ++row, in += lanes) {
      a0 = hn::Add(a0, hn::PromoteTo(tag, hn::LoadU(half_tag, in)));
      a1 = hn::Add(a1, hn::PromoteTo(tag, hn::LoadU(half_tag, in + width)));
      b0 = hn::Add(b0, a0);
      b1 = hn::Add(b1, a1);
    }
    uint32_t first[2 * hn::MaxLanes(tag)], second[2 * hn::MaxLanes(tag)];
    hn::StoreU(a0, tag, first);
    hn::StoreU(a1, tag, first + width);
    hn::StoreU(b0, tag, second);
    hn::StoreU(b1, tag, second + width);
    // The word in lane j of row m has weight rows * lanes - (m * lanes + j).
    uint64_t plain = 0, weighted = 0;
    for (size_t j = 0; j < lanes; ++j) {
      plain += first[j];
      weighted += lanes * uint64_t{second[j]} - j * uint64_t{first[j]};
    }
    sum2 = fold(sum2 + rows * lanes * sum1 + weighted);
    sum1 = fold(sum1 + plain);
    bytes = bytes.subspan(2 * rows * lanes);
  }
  return bytes;
}

void add_words(std::span<const std::byte> bytes, uint64_t& sum1, uint64_t& sum2) {
  bytes = add_rows(bytes, sum1, sum2);
  for (; bytes.size() >= 2; bytes = bytes.subspan(2)) {
    uint16_t half;
    std::memcpy(&half, bytes.data(), 2);
    sum1 += half;
    sum2 += sum1;
  }
  if (!bytes.empty()) {  // an odd last byte is the high one of a big-endian word
    sum1 += static_cast<uint64_t>(bytes[0]);
    sum2 += sum1;
  }
  sum1 = fold(sum1);
  sum2 = fold(sum2);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace lockstep::checkpoint
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::checkpoint {
namespace {

HWY_EXPORT(add_words);

uint32_t swap_bytes(uint64_t half) { return static_cast<uint32_t>((half & 0xff) << 8 | half >> 8); }

}  // namespace

void Fletcher32::add(std::span<const std::byte> bytes) {
  HWY_DYNAMIC_DISPATCH(add_words)(bytes, sum1_, sum2_);
}

uint32_t Fletcher32::digest() const { return swap_bytes(sum2_) << 16 | swap_bytes(sum1_); }

uint32_t fletcher32(std::span<const std::byte> bytes) {
  Fletcher32 sum;
  sum.add(bytes);
  return sum.digest();
}

bool fletcher32_matches(std::span<const std::byte> stored) {
  if (stored.size() < kFletcherBytes) return false;
  uint32_t written;
  const size_t payload = stored.size() - kFletcherBytes;
  std::memcpy(&written, stored.data() + payload, kFletcherBytes);
  return written == fletcher32(stored.first(payload));
}

}  // namespace lockstep::checkpoint
#endif
