// fingerprint and copy_with_fingerprint of state.h: the formula of docs/FORMAT.md, many words at a
// time; 16-bit elements are widened to words first. Every form adds up the same products modulo
// 2^64, in another order.
// Highway includes this file once for each instruction set, and the widest that the CPU has is
// called.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "checkpoint/record/fingerprint.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "checkpoint/record/state.h"

#ifndef LOCKSTEP_FINGERPRINT_WORDS  // what all instruction sets share
#define LOCKSTEP_FINGERPRINT_WORDS
namespace lockstep::checkpoint {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio: SplitMix64's increment
constexpr uint64_t kMix = 0xd6e8feb86659fd93ULL;

// z = (index + 1) * kGolden of the first word.
struct Words {
  const std::byte* from;
  std::byte* to;  // nullptr where nothing is copied
  size_t count;
  uint64_t z;

  void skip(size_t words) {
    from += 4 * words;
    if (to != nullptr) to += 4 * words;
    count -= words;
    z += words * kGolden;
  }
};

uint64_t sum_portable(const Words& words) {
  uint64_t sum = 0;
  for (size_t i = 0; i < words.count; ++i) {
    uint32_t word;
    std::memcpy(&word, words.from + 4 * i, 4);
    const uint64_t z = words.z + i * kGolden, mixed = (z ^ (z >> 32)) * kMix;
    sum += word * ((mixed ^ (mixed >> 32)) | 1);  // an odd weight for each index
  }
  return sum;
}

}  // namespace
}  // namespace lockstep::checkpoint
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::checkpoint {
namespace {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

// Words in 64-bit lanes, times their weights modulo 2^64.
template <class Tag, class Vec>
HWY_INLINE Vec weighted(Tag tag, Vec words, Vec z) {
  const Vec one = hn::Set(tag, 1), folded = hn::Xor(z, hn::ShiftRight<32>(z));
#if HWY_TARGET <= HWY_AVX3  // has the product of 64-bit lanes
  const Vec mixed = hn::Mul(folded, hn::Set(tag, kMix));
  return hn::Mul(words, hn::Or(hn::Xor(mixed, hn::ShiftRight<32>(mixed)), one));
#else
  const auto product = [](Vec a, Vec b) HWY_ATTR {  // of the low halves of lanes
    const hn::Repartition<uint32_t, Tag> half_tag;
    return hn::MulEven(hn::BitCast(half_tag, a), hn::BitCast(half_tag, b));
  };
  const Vec low = hn::Set(tag, kMix & 0xffffffff), high = hn::Set(tag, kMix >> 32);
  const Vec cross = hn::Add(product(hn::ShiftRight<32>(folded), low), product(folded, high));
  const Vec mixed = hn::Add(product(folded, low), hn::ShiftLeft<32>(cross));
  const Vec top = hn::ShiftRight<32>(mixed);
  const Vec weight = hn::Or(hn::Xor(mixed, top), one);
  return hn::Add(product(words, weight), hn::ShiftLeft<32>(product(words, top)));
#endif
}

template <bool kCopy>
HWY_INLINE uint64_t sum_vectors(Words& words) {
  const hn::ScalableTag<uint64_t> tag;
  const hn::Repartition<uint32_t, decltype(tag)> word_tag;
  const hn::Repartition<uint8_t, decltype(tag)> byte_tag;
  const hn::Half<decltype(word_tag)> half_tag;
  const size_t width = hn::Lanes(tag), lanes = 2 * width, done = words.count / lanes * lanes;
  uint64_t start[2 * hn::MaxLanes(tag)];
  for (size_t i = 0; i < lanes; ++i) start[i] = words.z + i * kGolden;
  auto z0 = hn::LoadU(tag, start), z1 = hn::LoadU(tag, start + width);
  const auto step = hn::Set(tag, lanes * kGolden);
  auto sum0 = hn::Zero(tag), sum1 = sum0;
  for (size_t i = 0; i < done; i += lanes) {
    const auto* from = reinterpret_cast<const uint8_t*>(words.from + 4 * i);
    const auto row = hn::BitCast(word_tag, hn::LoadU(byte_tag, from));
    if constexpr (kCopy) hn::Stream(row, word_tag, reinterpret_cast<uint32_t*>(words.to + 4 * i));
    const auto front = hn::PromoteTo(tag, hn::LowerHalf(half_tag, row));
    const auto back = hn::PromoteTo(tag, hn::UpperHalf(half_tag, row));
    sum0 = hn::Add(sum0, weighted(tag, front, z0));
    sum1 = hn::Add(sum1, weighted(tag, back, z1));
    z0 = hn::Add(z0, step);
    z1 = hn::Add(z1, step);
  }
  words.skip(done);
  // Not SumOfLanes: g++ 12 adds signed numbers there, and they overflow.
  hn::StoreU(hn::Add(sum0, sum1), tag, start);
  return std::accumulate(start, start + width, uint64_t{0});
}
#else
template <bool>
uint64_t sum_vectors(Words&) {
  return 0;
}
#endif

// Both leave in `words` what is less than a vector. Streaming needs an aligned `to`.
uint64_t sum(Words& words) { return sum_vectors<false>(words); }
uint64_t stream_and_sum(Words& words) { return sum_vectors<true>(words); }

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace lockstep::checkpoint
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::checkpoint {
namespace {

HWY_EXPORT(sum);
HWY_EXPORT(stream_and_sum);

// A copy without streaming stores goes through a cache by this much, a multiple of 4.
constexpr size_t kBlockBytes = size_t{16} << 10;

uint64_t copy_portable(Words words) {
  uint64_t sum = 0;
  while (words.count > 0) {
    const size_t count = std::min(words.count, kBlockBytes / 4);
    std::memcpy(words.to, words.from, 4 * count);
    sum += sum_portable({words.from, nullptr, count, words.z});
    words.skip(count);
  }
  return sum;
}

// Elements of 16 bits, widened a block at a time.
uint64_t sum_of_halves(std::span<const std::byte> bytes, int64_t flat_start) {
  constexpr size_t kCount = kBlockBytes / 4;
  uint32_t words[kCount];
  uint64_t sum = 0;
  for (size_t at = 0; at < bytes.size(); at += 2 * kCount) {
    const size_t count = std::min(kCount, (bytes.size() - at) / 2);
    for (size_t i = 0; i < count; ++i) {
      uint16_t half;
      std::memcpy(&half, bytes.data() + at + 2 * i, 2);
      words[i] = half;
    }
    sum += fingerprint(std::as_bytes(std::span(words, count)),
                       flat_start + static_cast<int64_t>(at / 2));
  }
  return sum;
}

uint64_t copy_halves(std::span<const std::byte> from, std::span<std::byte> to, int64_t flat_start) {
  uint64_t sum = 0;
  for (size_t at = 0; at < from.size(); at += kBlockBytes) {
    const auto block = to.subspan(at, std::min(kBlockBytes, from.size() - at));
    std::memcpy(block.data(), from.data() + at, block.size());
    sum += sum_of_halves(block, flat_start + static_cast<int64_t>(at / 2));
  }
  return sum;
}

Words words_of(std::span<const std::byte> from, std::byte* to, int64_t flat_start) {
  LOCKSTEP_CHECK(from.size() % 4 == 0, "bytes ", from.size());
  return {from.data(), to, from.size() / 4, (static_cast<uint64_t>(flat_start) + 1) * kGolden};
}

}  // namespace

uint64_t fingerprint(std::span<const std::byte> bytes, int64_t flat_start, Dtype dtype) {
  LOCKSTEP_CHECK(bytes.size() % static_cast<size_t>(dtype_bytes(dtype)) == 0, bytes.size());
  if (dtype != Dtype::kF32) return sum_of_halves(bytes, flat_start);
  Words words = words_of(bytes, nullptr, flat_start);
  const uint64_t sum = HWY_DYNAMIC_DISPATCH(sum)(words);
  return sum + sum_portable(words);
}

uint64_t copy_with_fingerprint(std::span<const std::byte> from, std::span<std::byte> to,
                               int64_t flat_start, Dtype dtype) {
  constexpr size_t kStoreBytes = 64;  // of the widest streaming store
  LOCKSTEP_CHECK(from.size() == to.size(), from.size(), " ", to.size());
  if (dtype != Dtype::kF32) return copy_halves(from, to, flat_start);
  Words words = words_of(from, to.data(), flat_start);
  const size_t over = reinterpret_cast<uintptr_t>(to.data()) % kStoreBytes;
  if (over % 4 != 0) return copy_portable(words);
  const size_t head = std::min(words.count, (kStoreBytes - over) % kStoreBytes / 4);
  uint64_t sum = copy_portable({words.from, words.to, head, words.z});
  words.skip(head);
  sum += HWY_DYNAMIC_DISPATCH(stream_and_sum)(words);
  sum += copy_portable(words);
  hwy::FlushStream();  // streaming stores are seen by whoever is told of this copy
  return sum;
}

}  // namespace lockstep::checkpoint
#endif
