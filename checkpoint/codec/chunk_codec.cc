#include "checkpoint/codec/chunk_codec.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/codec/plane_frame.h"

namespace lockstep::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

// What is done to a chunk is done to one such block after another, while it is in the L1 cache.
constexpr size_t kBlockBytes = size_t{16} << 10;

std::span<const std::byte> block_at(std::span<const std::byte> bytes, size_t at) {
  return bytes.subspan(at, std::min(kBlockBytes, bytes.size() - at));
}

// XXH3 and fingerprint of a chunk's raw bytes, block by block.
class RawSummer {
 public:
  void begin(int64_t flat_start, size_t real_bytes, Dtype dtype) {
    xxh3_.reset();
    dtype_ = dtype;
    flat_start_ = flat_start;
    real_left_ = real_bytes;
    fingerprint_ = 0;
  }
  void add(std::span<const std::byte> block) {
    xxh3_.update(block);
    const auto real = block.first(std::min(real_left_, block.size()));
    fingerprint_ += fingerprint(real, flat_start_, dtype_);
    flat_start_ += static_cast<int64_t>(real.size()) / dtype_bytes(dtype_);
    real_left_ -= real.size();
  }
  RawSums sums() const { return {xxh3_.digest(), fingerprint_}; }

 private:
  Xxh3Stream xxh3_;
  Dtype dtype_ = Dtype::kF32;
  int64_t flat_start_ = 0;
  size_t real_left_ = 0;
  uint64_t fingerprint_ = 0;
};

// zlib's own fastest level: gzip is for readers without a plugin, not for speed.
constexpr int kGzipLevel = 1;

// fletcher32 and CRC32C of a chunk's stored bytes, block by block.
class StoredSummer {
 public:
  void add(std::span<const std::byte> block) {
    fletcher_.add(block);
    crc_ = crc32c(block, crc_);
  }
  // Puts fletcher32 behind the `payload` bytes that were added, and fills in what is stored.
  void finish(size_t payload, EncodedChunk& out) {
    const uint32_t sum = fletcher_.digest();
    std::byte* const end = out.stored.data() + payload;
    std::memcpy(end, &sum, kFletcherBytes);
    out.stored_bytes = payload + kFletcherBytes;
    out.crc32c = crc32c({end, kFletcherBytes}, crc_);
  }

 private:
  Fletcher32 fletcher_;
  uint32_t crc_ = 0;
};

}  // namespace

Result<Codec> codec_from_name(const std::string& name) {
  if (const auto codec = choice_of<Codec>(name)) return *codec;
  return Error{Code::kConfig,
               text("unknown checkpoint codec \"", name, "\"; use zstd, none or gzip")};
}

struct ChunkEncoder::Impl {
  explicit Impl(Codec c) : codec(c) {}
  const Codec codec;
  RawSummer sums;
  PlaneFrameWriter frame;
  std::vector<std::byte> padded, shuffled;
};

ChunkEncoder::ChunkEncoder(Codec codec) : impl_(std::make_unique<Impl>(codec)) {}
ChunkEncoder::~ChunkEncoder() = default;

// Sums up the chunk and compresses it. The payload's size; 0 when it is not smaller than
// out.size(), the sums are not complete then.
size_t ChunkEncoder::compress_into(std::span<const std::byte> chunk, size_t planes,
                                   std::span<std::byte> out) {
  const bool zstd = impl_->codec == Codec::kZstd;
  const size_t noise = zstd ? noise_planes(chunk, planes) : 0;
  if (noise == planes || (zstd && !impl_->frame.begin(chunk.size(), noise, out, planes))) return 0;
  for (size_t at = 0; at < chunk.size(); at += kBlockBytes) {
    impl_->sums.add(block_at(chunk, at));
    if (zstd) impl_->frame.add(block_at(chunk, at));
  }
  if (zstd) return impl_->frame.finish();
  impl_->shuffled.resize(chunk.size());
  shuffle_words(chunk, impl_->shuffled, planes);
  uLongf size = out.size();
  const int status =
      compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                reinterpret_cast<const Bytef*>(impl_->shuffled.data()), chunk.size(), kGzipLevel);
  return status == Z_OK ? size : 0;
}

void ChunkEncoder::encode(std::span<const std::byte> raw, size_t chunk_bytes, bool compress,
                          EncodedChunk& out, int64_t flat_start, Dtype dtype) {
  const auto planes = static_cast<size_t>(dtype_bytes(dtype));
  LOCKSTEP_CHECK(raw.size() <= chunk_bytes && chunk_bytes % planes == 0, raw.size(), " ",
                 chunk_bytes);
  const size_t real_bytes = raw.size();
  if (raw.size() < chunk_bytes) {
    impl_->padded.assign(chunk_bytes, std::byte{0});
    std::copy(raw.begin(), raw.end(), impl_->padded.begin());
    raw = impl_->padded;
  }
  if (out.stored.size() < chunk_bytes + kFletcherBytes)
    out.stored.resize(chunk_bytes + kFletcherBytes);
  const size_t limit = static_cast<size_t>(static_cast<double>(chunk_bytes) / kMinRatio);
  const bool plain = impl_->codec == Codec::kNone;
  size_t payload = 0;
  impl_->sums.begin(flat_start, real_bytes, dtype);
  if (compress && !plain) payload = compress_into(raw, planes, std::span(out.stored).first(limit));
  StoredSummer stored;
  if (payload > 0) {
    const auto bytes = std::span<const std::byte>(out.stored).first(payload);
    for (size_t at = 0; at < payload; at += kBlockBytes) stored.add(block_at(bytes, at));
  } else {
    impl_->sums.begin(flat_start, real_bytes, dtype);
    for (size_t at = 0; at < chunk_bytes; at += kBlockBytes) {
      const auto block = block_at(raw, at);
      std::copy(block.begin(), block.end(), out.stored.begin() + static_cast<ptrdiff_t>(at));
      impl_->sums.add(block);
      stored.add(block);
    }
  }
  stored.finish(payload > 0 ? payload : chunk_bytes, out);
  out.filter_mask = payload == 0 && !plain ? kRawMask : 0;
  out.raw_bytes = chunk_bytes;
  const RawSums sums = impl_->sums.sums();
  out.xxh3 = sums.xxh3;
  out.fingerprint = sums.fingerprint;
}

struct ChunkDecoder::Impl {
  explicit Impl(Codec c) : codec(c) {}
  const Codec codec;
  RawSummer sums;
  PlaneFrameReader frame;
  std::vector<std::byte> shuffled;
};

ChunkDecoder::ChunkDecoder(Codec codec) : impl_(std::make_unique<Impl>(codec)) {}
ChunkDecoder::~ChunkDecoder() = default;

Result<void> ChunkDecoder::inflate(std::span<const std::byte> stored, size_t planes,
                                   std::span<std::byte> raw) {
  impl_->shuffled.resize(raw.size());
  uLongf size = raw.size();
  const int status = uncompress(reinterpret_cast<Bytef*>(impl_->shuffled.data()), &size,
                                reinterpret_cast<const Bytef*>(stored.data()), stored.size());
  if (status != Z_OK) return Error{Code::kCorrupt, text("zlib: error ", status)};
  if (size != raw.size())
    return Error{Code::kCorrupt, text(size, " decoded bytes, expected ", raw.size())};
  unshuffle_words(impl_->shuffled, raw, planes);
  return {};
}

Result<RawSums> ChunkDecoder::decode(std::span<const std::byte> stored, uint32_t filter_mask,
                                     std::span<std::byte> raw, int64_t flat_start,
                                     size_t real_bytes, Dtype dtype) {
  const auto planes = static_cast<size_t>(dtype_bytes(dtype));
  if (stored.size() < kFletcherBytes || raw.size() % planes != 0)
    return Error{Code::kCorrupt, text(stored.size(), " stored bytes cannot hold a chunk of ",
                                      raw.size(), " bytes")};
  stored = stored.first(stored.size() - kFletcherBytes);
  const bool plain = impl_->codec == Codec::kNone || filter_mask == kRawMask;
  const bool zstd = !plain && impl_->codec == Codec::kZstd;
  if (!plain && filter_mask != 0)
    return Error{Code::kCorrupt, text("unknown filter mask ", filter_mask)};
  if (plain && stored.size() != raw.size())
    return Error{Code::kCorrupt, text(stored.size(), " raw bytes, expected ", raw.size())};
  if (zstd) LOCKSTEP_RETURN_IF_ERROR(impl_->frame.open(stored, raw.size(), planes));
  if (!plain && !zstd) LOCKSTEP_RETURN_IF_ERROR(inflate(stored, planes, raw));
  impl_->sums.begin(flat_start, real_bytes, dtype);
  for (size_t at = 0; at < raw.size(); at += kBlockBytes) {
    const auto block = raw.subspan(at, std::min(kBlockBytes, raw.size() - at));
    if (plain) std::memcpy(block.data(), stored.data() + at, block.size());
    if (zstd) impl_->frame.take(block);
    impl_->sums.add(block);
  }
  return impl_->sums.sums();
}

}  // namespace lockstep::checkpoint
