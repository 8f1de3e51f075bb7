#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_c_literalCompressionMode
#include "checkpoint/chunk_codec.h"

#include <zlib.h>
#include <zstd.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/state.h"

namespace lockstep::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

// GCC's and Clang's vectors compile to SSE2 or NEON alike.
typedef uint16_t Halves16 __attribute__((vector_size(32)));
typedef uint32_t Words16 __attribute__((vector_size(64)));

constexpr size_t kFletcherBytes = 4;

uint32_t fold(uint64_t sum) {  // mod 65535; only 0 gives 0
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint32_t>(sum);
}

uint32_t swap_bytes(uint32_t half) { return ((half & 0xff) << 8) | (half >> 8); }

uint32_t load_half(const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, 2);
  return half;
}

// 16 words at `in` to 16 bytes in each of 4 planes, `stride` bytes apart; and back.
#if defined(__SSE2__)
__m128i load_16(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}
void store_16(std::byte* at, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), value);
}
void shuffle_16(const std::byte* in, std::byte* out, size_t stride) {
  const __m128i low = _mm_set1_epi32(0xff);
  const __m128i w[4] = {load_16(in), load_16(in + 16), load_16(in + 32), load_16(in + 48)};
  for (int plane = 0; plane < 4; ++plane) {
    const auto bytes = [&](int i) { return _mm_and_si128(_mm_srli_epi32(w[i], 8 * plane), low); };
    const __m128i front = _mm_packs_epi32(bytes(0), bytes(1));
    const __m128i back = _mm_packs_epi32(bytes(2), bytes(3));
    store_16(out + static_cast<size_t>(plane) * stride, _mm_packus_epi16(front, back));
  }
}
void unshuffle_16(const std::byte* in, size_t stride, std::byte* out) {
  const __m128i p0 = load_16(in), p1 = load_16(in + stride);
  const __m128i p2 = load_16(in + 2 * stride), p3 = load_16(in + 3 * stride);
  const __m128i low_front = _mm_unpacklo_epi8(p0, p1), low_back = _mm_unpackhi_epi8(p0, p1);
  const __m128i high_front = _mm_unpacklo_epi8(p2, p3), high_back = _mm_unpackhi_epi8(p2, p3);
  store_16(out, _mm_unpacklo_epi16(low_front, high_front));
  store_16(out + 16, _mm_unpackhi_epi16(low_front, high_front));
  store_16(out + 32, _mm_unpacklo_epi16(low_back, high_back));
  store_16(out + 48, _mm_unpackhi_epi16(low_back, high_back));
}
#elif defined(__ARM_NEON)
void shuffle_16(const std::byte* in, std::byte* out, size_t stride) {
  const uint8x16x4_t planes = vld4q_u8(reinterpret_cast<const uint8_t*>(in));
  for (size_t plane = 0; plane < 4; ++plane)
    vst1q_u8(reinterpret_cast<uint8_t*>(out + plane * stride), planes.val[plane]);
}
void unshuffle_16(const std::byte* in, size_t stride, std::byte* out) {
  uint8x16x4_t planes;
  for (size_t plane = 0; plane < 4; ++plane)
    planes.val[plane] = vld1q_u8(reinterpret_cast<const uint8_t*>(in + plane * stride));
  vst4q_u8(reinterpret_cast<uint8_t*>(out), planes);
}
#else
void shuffle_16(const std::byte* in, std::byte* out, size_t stride) {
  for (size_t i = 0; i < 64; ++i) out[i % 4 * stride + i / 4] = in[i];
}
void unshuffle_16(const std::byte* in, size_t stride, std::byte* out) {
  for (size_t i = 0; i < 64; ++i) out[i] = in[i % 4 * stride + i / 4];
}
#endif

// zlib's own fastest level: gzip is for readers without a plugin, not for speed.
constexpr int kGzipLevel = 1;

}  // namespace

const char* codec_name(Codec codec) {
  switch (codec) {
    case Codec::kZstd: return "zstd";
    case Codec::kNone: return "none";
    case Codec::kGzip: return "gzip";
  }
  return "?";
}

Result<Codec> codec_from_name(const std::string& name) {
  for (Codec codec : {Codec::kZstd, Codec::kNone, Codec::kGzip})
    if (name == codec_name(codec)) return codec;
  return Error{Code::kConfig, text("checkpoint codec \"", name, "\": one of zstd, none, gzip")};
}

// Sums modulo 65535 commute with swapping the bytes of a 16-bit word (a multiplication by 256), so
// little-endian words are added, 16 lanes at a time, and the two sums are swapped at the end.
uint32_t fletcher32(std::span<const std::byte> bytes) {
  constexpr size_t kLanes = 16;
  constexpr size_t kRows = 256;  // the lanes' second sums stay below 2^32: 65535 * 256 * 257 / 2
  uint64_t sum1 = 0, sum2 = 0;
  const std::byte* at = bytes.data();
  size_t halves = bytes.size() / 2;
  while (halves >= kLanes) {
    const size_t rows = std::min(kRows, halves / kLanes);
    Words16 a{}, b{};
    for (size_t row = 0; row < rows; ++row, at += 2 * kLanes) {
      Halves16 half;
      std::memcpy(&half, at, sizeof half);
      a += __builtin_convertvector(half, Words16);
      b += a;
    }
    // The word in lane j of row m has weight rows * kLanes - (m * kLanes + j).
    uint64_t plain = 0, weighted = 0;
    for (size_t j = 0; j < kLanes; ++j) {
      plain += a[j];
      weighted += kLanes * uint64_t{b[j]} - j * uint64_t{a[j]};
    }
    sum2 = fold(sum2 + rows * kLanes * sum1 + weighted);
    sum1 = fold(sum1 + plain);
    halves -= rows * kLanes;
  }
  for (; halves > 0; --halves, at += 2) {
    sum1 += load_half(at);
    sum2 += sum1;
  }
  if (bytes.size() % 2 != 0) {  // an odd last byte is the high one of a big-endian word
    sum1 += static_cast<uint32_t>(*at);
    sum2 += sum1;
  }
  return swap_bytes(fold(sum2)) << 16 | swap_bytes(fold(sum1));
}

bool fletcher32_matches(std::span<const std::byte> stored) {
  if (stored.size() < kFletcherBytes) return false;
  uint32_t written;
  const size_t payload = stored.size() - kFletcherBytes;
  std::memcpy(&written, stored.data() + payload, kFletcherBytes);
  return written == fletcher32(stored.first(payload));
}

void shuffle_words(std::span<const std::byte> in, std::span<std::byte> out) {
  LOCKSTEP_CHECK(in.size() == out.size() && in.size() % 4 == 0, in.size(), " ", out.size());
  const size_t count = in.size() / 4;
  size_t i = 0;
  for (; i + 16 <= count; i += 16) shuffle_16(in.data() + 4 * i, out.data() + i, count);
  for (; i < count; ++i)
    for (size_t plane = 0; plane < 4; ++plane) out[plane * count + i] = in[4 * i + plane];
}

void unshuffle_words(std::span<const std::byte> in, std::span<std::byte> out) {
  LOCKSTEP_CHECK(in.size() == out.size() && in.size() % 4 == 0, in.size(), " ", out.size());
  const size_t count = in.size() / 4;
  size_t i = 0;
  for (; i + 16 <= count; i += 16) unshuffle_16(in.data() + i, count, out.data() + 4 * i);
  for (; i < count; ++i)
    for (size_t plane = 0; plane < 4; ++plane) out[4 * i + plane] = in[plane * count + i];
}

struct ChunkEncoder::Impl {
  Codec codec;
  std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> zstd{nullptr, &ZSTD_freeCCtx};
  std::vector<std::byte> padded, shuffled;
};

ChunkEncoder::ChunkEncoder(Codec codec) : impl_(std::make_unique<Impl>()) {
  impl_->codec = codec;
  if (codec != Codec::kZstd) return;
  impl_->zstd.reset(ZSTD_createCCtx());
  LOCKSTEP_CHECK(impl_->zstd != nullptr, "no memory for a zstd context");
  const auto set = [&](ZSTD_cParameter parameter, int value) {
    return ZSTD_isError(ZSTD_CCtx_setParameter(impl_->zstd.get(), parameter, value)) == 0;
  };
  // Without literal compression a negative level leaves fp32 state almost as it is.
  if (!set(ZSTD_c_compressionLevel, kZstdLevel) ||
      !set(ZSTD_c_literalCompressionMode, ZSTD_ps_enable))
    LOCKSTEP_CHECK(set(ZSTD_c_compressionLevel, 1), "zstd refuses level 1");
}

ChunkEncoder::~ChunkEncoder() = default;

// The payload's size, or 0 when it is not smaller than out.size().
size_t ChunkEncoder::compress_into(std::span<const std::byte> chunk, std::span<std::byte> out) {
  impl_->shuffled.resize(chunk.size());
  shuffle_words(chunk, impl_->shuffled);
  if (impl_->codec == Codec::kZstd) {
    const size_t size = ZSTD_compress2(impl_->zstd.get(), out.data(), out.size(),
                                       impl_->shuffled.data(), chunk.size());
    return ZSTD_isError(size) ? 0 : size;
  }
  uLongf size = out.size();
  const int status = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(impl_->shuffled.data()),
                               chunk.size(), kGzipLevel);
  return status == Z_OK ? size : 0;
}

void ChunkEncoder::encode(std::span<const std::byte> raw, size_t chunk_bytes, bool compress,
                          EncodedChunk& out, int64_t flat_start) {
  LOCKSTEP_CHECK(raw.size() <= chunk_bytes && chunk_bytes % 4 == 0, raw.size(), " ", chunk_bytes);
  out.fingerprint = fingerprint(raw, flat_start);
  if (raw.size() < chunk_bytes) {
    impl_->padded.assign(chunk_bytes, std::byte{0});
    std::copy(raw.begin(), raw.end(), impl_->padded.begin());
    raw = impl_->padded;
  }
  if (out.stored.size() < chunk_bytes + kFletcherBytes)
    out.stored.resize(chunk_bytes + kFletcherBytes);
  const size_t limit = static_cast<size_t>(static_cast<double>(chunk_bytes) / kMinRatio);
  size_t payload = 0;
  if (compress && impl_->codec != Codec::kNone)
    payload = compress_into(raw, std::span(out.stored).first(limit));
  out.filter_mask = 0;
  if (payload == 0) {
    std::copy(raw.begin(), raw.end(), out.stored.begin());
    payload = chunk_bytes;
    if (impl_->codec != Codec::kNone) out.filter_mask = kRawMask;
  }
  const uint32_t sum = fletcher32(std::span(out.stored).first(payload));
  std::memcpy(out.stored.data() + payload, &sum, kFletcherBytes);
  out.stored_bytes = payload + kFletcherBytes;
  out.raw_bytes = chunk_bytes;
  out.crc32c = lockstep::crc32c(std::span(out.stored).first(out.stored_bytes));
  out.xxh3 = xxh3_64(raw);
}

struct ChunkDecoder::Impl {
  Codec codec;
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> zstd{nullptr, &ZSTD_freeDCtx};
  std::vector<std::byte> shuffled;
};

ChunkDecoder::ChunkDecoder(Codec codec) : impl_(std::make_unique<Impl>()) {
  impl_->codec = codec;
  if (codec == Codec::kZstd) {
    impl_->zstd.reset(ZSTD_createDCtx());
    LOCKSTEP_CHECK(impl_->zstd != nullptr, "no memory for a zstd context");
  }
}

ChunkDecoder::~ChunkDecoder() = default;

Result<RawSums> ChunkDecoder::decode(std::span<const std::byte> stored, uint32_t filter_mask,
                                     std::span<std::byte> raw, int64_t flat_start,
                                     size_t real_bytes) {
  const auto sums = [&] {
    const auto real = raw.first(std::min(real_bytes, raw.size()));
    return RawSums{xxh3_64(raw), fingerprint(real, flat_start)};
  };
  if (stored.size() < kFletcherBytes)
    return Error{Code::kCorrupt, text(stored.size(), " stored bytes are no chunk")};
  stored = stored.first(stored.size() - kFletcherBytes);
  const bool plain = impl_->codec == Codec::kNone || filter_mask == kRawMask;
  if (!plain && filter_mask != 0)
    return Error{Code::kCorrupt, text("filter mask ", filter_mask, " is not one of ours")};
  if (plain) {
    if (stored.size() != raw.size())
      return Error{Code::kCorrupt, text(stored.size(), " raw bytes, expected ", raw.size())};
    std::copy(stored.begin(), stored.end(), raw.begin());
    return sums();
  }
  impl_->shuffled.resize(raw.size());
  std::byte* const into = impl_->shuffled.data();
  size_t size = raw.size();
  if (impl_->codec == Codec::kZstd) {
    size = ZSTD_decompressDCtx(impl_->zstd.get(), into, size, stored.data(), stored.size());
    if (ZSTD_isError(size)) return Error{Code::kCorrupt, text("zstd: ", ZSTD_getErrorName(size))};
  } else {
    uLongf inflated = size;
    const int status = uncompress(reinterpret_cast<Bytef*>(into), &inflated,
                                  reinterpret_cast<const Bytef*>(stored.data()), stored.size());
    if (status != Z_OK) return Error{Code::kCorrupt, text("zlib: error ", status)};
    size = inflated;
  }
  if (size != raw.size())
    return Error{Code::kCorrupt, text(size, " decoded bytes, expected ", raw.size())};
  unshuffle_words(impl_->shuffled, raw);
  return sums();
}

}  // namespace lockstep::checkpoint
