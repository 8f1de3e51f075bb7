// Highway includes this file once for each instruction set; split_planes and join_planes call the
// widest that the CPU has.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "checkpoint/codec/byte_planes.cc"
#include "checkpoint/codec/byte_planes.h"

#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "base/check.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::checkpoint {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using To = std::array<std::byte*, kPlanes>;
using From = std::array<const std::byte*, kPlanes>;

const uint8_t* bytes_at(const std::byte* from) { return reinterpret_cast<const uint8_t*>(from); }
uint8_t* bytes_at(std::byte* to) { return reinterpret_cast<uint8_t*>(to); }

void split(const std::byte* in, size_t words, const To& to) {
  const hn::ScalableTag<uint8_t> tag;
  const size_t lanes = hn::Lanes(tag);
  const To planes = to;  // a copy, which no store can change
  size_t i = 0;
  for (; i + lanes <= words; i += lanes) {
    hn::Vec<decltype(tag)> b0, b1, b2, b3;
    hn::LoadInterleaved4(tag, bytes_at(in + 4 * i), b0, b1, b2, b3);
    hn::StoreU(b0, tag, bytes_at(planes[0] + i));
    hn::StoreU(b1, tag, bytes_at(planes[1] + i));
    hn::StoreU(b2, tag, bytes_at(planes[2] + i));
    hn::StoreU(b3, tag, bytes_at(planes[3] + i));
  }
  for (; i < words; ++i)
    for (size_t plane = 0; plane < kPlanes; ++plane) planes[plane][i] = in[4 * i + plane];
}

void join(const From& from, size_t words, std::byte* out) {
  const hn::CappedTag<uint8_t, 32> tag;  // wider ones interleave more slowly
  const size_t lanes = hn::Lanes(tag);
  const From planes = from;
  const auto load = [&](size_t plane, size_t at)
                        HWY_ATTR { return hn::LoadU(tag, bytes_at(planes[plane] + at)); };
  size_t i = 0;
  for (; i + lanes <= words; i += lanes)
    hn::StoreInterleaved4(load(0, i), load(1, i), load(2, i), load(3, i), tag,
                          bytes_at(out + 4 * i));
  for (; i < words; ++i)
    for (size_t plane = 0; plane < kPlanes; ++plane) out[4 * i + plane] = planes[plane][i];
}

void split2(const std::byte* in, size_t words, const To& to) {
  const hn::ScalableTag<uint8_t> tag;
  const size_t lanes = hn::Lanes(tag);
  const To planes = to;
  size_t i = 0;
  for (; i + lanes <= words; i += lanes) {
    hn::Vec<decltype(tag)> b0, b1;
    hn::LoadInterleaved2(tag, bytes_at(in + 2 * i), b0, b1);
    hn::StoreU(b0, tag, bytes_at(planes[0] + i));
    hn::StoreU(b1, tag, bytes_at(planes[1] + i));
  }
  for (; i < words; ++i)
    for (size_t plane = 0; plane < 2; ++plane) planes[plane][i] = in[2 * i + plane];
}

void join2(const From& from, size_t words, std::byte* out) {
  const hn::CappedTag<uint8_t, 32> tag;
  const size_t lanes = hn::Lanes(tag);
  const From planes = from;
  size_t i = 0;
  for (; i + lanes <= words; i += lanes)
    hn::StoreInterleaved2(hn::LoadU(tag, bytes_at(planes[0] + i)),
                          hn::LoadU(tag, bytes_at(planes[1] + i)), tag, bytes_at(out + 2 * i));
  for (; i < words; ++i)
    for (size_t plane = 0; plane < 2; ++plane) out[2 * i + plane] = planes[plane][i];
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace lockstep::checkpoint
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::checkpoint {
namespace {

HWY_EXPORT(split);
HWY_EXPORT(join);
HWY_EXPORT(split2);
HWY_EXPORT(join2);

// The planes of `bytes`, which holds one after another.
template <typename Byte>
std::array<Byte*, kPlanes> planes_in(std::span<Byte> bytes, size_t count) {
  std::array<Byte*, kPlanes> planes{};
  for (size_t plane = 0; plane < count; ++plane)
    planes[plane] = bytes.data() + plane * (bytes.size() / count);
  return planes;
}

}  // namespace

void split_planes(const std::byte* in, size_t words, const std::array<std::byte*, kPlanes>& planes,
                  size_t count) {
  LOCKSTEP_CHECK(count == kPlanes || count == 2, count);
  if (count == 2) return HWY_DYNAMIC_DISPATCH(split2)(in, words, planes);
  HWY_DYNAMIC_DISPATCH(split)(in, words, planes);
}

void join_planes(const std::array<const std::byte*, kPlanes>& planes, size_t words, std::byte* out,
                 size_t count) {
  LOCKSTEP_CHECK(count == kPlanes || count == 2, count);
  if (count == 2) return HWY_DYNAMIC_DISPATCH(join2)(planes, words, out);
  HWY_DYNAMIC_DISPATCH(join)(planes, words, out);
}

void shuffle_words(std::span<const std::byte> in, std::span<std::byte> out, size_t count) {
  LOCKSTEP_CHECK(in.size() == out.size() && in.size() % count == 0, in.size(), " ", out.size());
  split_planes(in.data(), in.size() / count, planes_in(out, count), count);
}

void unshuffle_words(std::span<const std::byte> in, std::span<std::byte> out, size_t count) {
  LOCKSTEP_CHECK(in.size() == out.size() && in.size() % count == 0, in.size(), " ", out.size());
  join_planes(planes_in(in, count), in.size() / count, out.data(), count);
}

}  // namespace lockstep::checkpoint
#endif
