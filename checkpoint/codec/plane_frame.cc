#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_c_literalCompressionMode, ZSTD_getFrameHeader
#include "checkpoint/codec/plane_frame.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

// RFC 8878, 3.1.1: magic number, a descriptor that says "single segment, 4 bytes of content size",
// then blocks: 3 bytes of last | type << 1 | size << 3, and their content.
constexpr size_t kHeaderBytes = 9, kBlockHeaderBytes = 3;
constexpr size_t kFrameBlockBytes = ZSTD_BLOCKSIZE_MAX;
constexpr uint32_t kRawBlock = 0;
// One plane of sign and exponent has no repeats to look for; planes with low bytes in them are
// coded for their runs of zeros (rows of an embedding that were never seen).
constexpr int kNoMatchLevel = -131072, kRunsLevel = -100, kFallbackLevel = 1;

void put_header(std::span<std::byte> out, size_t content_bytes) {
  const uint32_t magic = ZSTD_MAGICNUMBER, size = static_cast<uint32_t>(content_bytes);
  std::memcpy(out.data(), &magic, 4);
  out[4] = std::byte{0b1010'0000};
  std::memcpy(out.data() + 5, &size, 4);
}

size_t block_count(size_t bytes) { return (bytes + kFrameBlockBytes - 1) / kFrameBlockBytes; }

std::byte* grown(std::vector<std::byte>& buffer, size_t size) {
  if (buffer.size() < size) buffer.resize(size);
  return buffer.data();
}

}  // namespace

size_t noise_planes(std::span<const std::byte> chunk, size_t planes) {
  constexpr size_t kSamples = 2048, kTooFew = 64;
  const size_t words = chunk.size() / planes;
  if (words < kTooFew) return 0;
  const size_t stride = words / kSamples | 1;  // odd: no row length is a multiple
  uint32_t counts[kPlanes][256] = {};
  uint64_t samples = 0;
  for (size_t i = 0; i < words; i += stride, ++samples)
    for (size_t plane = 0; plane < planes; ++plane)
      ++counts[plane][static_cast<uint8_t>(chunk[planes * i + plane])];
  // Of all pairs of samples 1 in 256 are equal where bytes are uniform. Twice as many: worth it.
  for (size_t plane = 0; plane < planes; ++plane) {
    uint64_t equal_pairs = 0;
    for (uint64_t count : counts[plane]) equal_pairs += count * (count - (count > 0 ? 1 : 0));
    if (equal_pairs * 128 > samples * (samples - 1)) return plane;
  }
  return planes;
}

struct PlaneFrameWriter::Context {
  std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> zstd{ZSTD_createCCtx(), &ZSTD_freeCCtx};
  bool forced_literals = false;
};

PlaneFrameWriter::PlaneFrameWriter(int literal_mode) : context_(std::make_unique<Context>()) {
  LOCKSTEP_CHECK(context_->zstd != nullptr, "no memory for a zstd context");
  // Without literal compression a negative level leaves fp32 state almost as it is.
  context_->forced_literals =
      ZSTD_isError(ZSTD_CCtx_setParameter(context_->zstd.get(), ZSTD_c_literalCompressionMode,
                                          literal_mode)) == 0;
}
PlaneFrameWriter::~PlaneFrameWriter() = default;

bool PlaneFrameWriter::begin(size_t chunk_bytes, size_t noise, std::span<std::byte> out,
                             size_t planes) {
  LOCKSTEP_CHECK(chunk_bytes % planes == 0 && noise < planes, chunk_bytes, " ", noise);
  planes_ = planes;
  plane_bytes_ = chunk_bytes / planes;
  noise_ = noise;
  done_ = 0;
  out_ = out;
  const size_t raw = noise * plane_bytes_;
  if (kHeaderBytes + block_count(raw) * kBlockHeaderBytes + raw > out.size()) return false;
  put_header(out, chunk_bytes);
  for (size_t begin = 0, block = 0; begin < raw; begin += kFrameBlockBytes, ++block) {
    const auto size = static_cast<uint32_t>(std::min(kFrameBlockBytes, raw - begin));
    const uint32_t header = kRawBlock << 1 | size << 3;
    std::memcpy(out.data() + kHeaderBytes + block * kBlockHeaderBytes + begin, &header,
                kBlockHeaderBytes);
  }
  grown(coded_, chunk_bytes - raw);
  return true;
}

void PlaneFrameWriter::add(std::span<const std::byte> words) {
  std::array<std::byte*, kPlanes> planes{};
  while (!words.empty()) {
    size_t count = words.size() / planes_;
    for (size_t plane = 0; plane < planes_; ++plane) {
      const size_t at = plane * plane_bytes_ + done_;
      if (plane >= noise_) {
        planes[plane] = coded_.data() + at - noise_ * plane_bytes_;
        continue;
      }
      planes[plane] =
          out_.data() + kHeaderBytes + (at / kFrameBlockBytes + 1) * kBlockHeaderBytes + at;
      count = std::min(count, kFrameBlockBytes - at % kFrameBlockBytes);
    }
    split_planes(words.data(), count, planes, planes_);
    words = words.subspan(planes_ * count);
    done_ += count;
  }
}

size_t PlaneFrameWriter::finish() {
  LOCKSTEP_CHECK(done_ == plane_bytes_, done_, " of ", plane_bytes_);
  const size_t raw = noise_ * plane_bytes_;
  const size_t at = kHeaderBytes + block_count(raw) * kBlockHeaderBytes + raw;
  const auto coded = std::span(coded_).first(planes_ * plane_bytes_ - raw);
  const size_t blocks = compress(coded, out_.subspan(at));
  return blocks == 0 ? 0 : at + blocks;
}

// The blocks of a frame of its own, without that frame's header.
size_t PlaneFrameWriter::compress(std::span<const std::byte> planes, std::span<std::byte> out) {
  const int level = !context_->forced_literals ? kFallbackLevel
                    : noise_ == planes_ - 1    ? kNoMatchLevel
                                               : kRunsLevel;
  ZSTD_CCtx_setParameter(context_->zstd.get(), ZSTD_c_compressionLevel, level);
  const size_t size =
      ZSTD_compress2(context_->zstd.get(), out.data(), out.size(), planes.data(), planes.size());
  if (ZSTD_isError(size)) return 0;
  const size_t header = ZSTD_frameHeaderSize(out.data(), size);
  LOCKSTEP_CHECK(header < size, "zstd wrote a frame of ", size, " bytes");
  std::memmove(out.data(), out.data() + header, size - header);
  return size - header;
}

struct PlaneFrameReader::Context {
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> zstd{ZSTD_createDCtx(), &ZSTD_freeDCtx};
};

PlaneFrameReader::PlaneFrameReader() : context_(std::make_unique<Context>()) {
  LOCKSTEP_CHECK(context_->zstd != nullptr, "no memory for a zstd context");
}
PlaneFrameReader::~PlaneFrameReader() = default;

// Into decoded_; an error of zstd, or the number of bytes.
size_t PlaneFrameReader::decompress(std::span<const std::byte> frame, size_t size) {
  return ZSTD_decompressDCtx(context_->zstd.get(), grown(decoded_, size), size, frame.data(),
                             frame.size());
}

// Leading raw blocks stay where they are; the blocks behind them are decoded under a header of
// their own. False when that is not possible: the blocks may refer back to the raw ones.
bool PlaneFrameReader::open_spliced(std::span<const std::byte> frame, size_t chunk_bytes) {
  ZSTD_frameHeader header;
  if (ZSTD_getFrameHeader(&header, frame.data(), frame.size()) != 0 ||
      header.frameType != ZSTD_frame || header.frameContentSize != chunk_bytes ||
      header.checksumFlag != 0 || header.dictID != 0)
    return false;
  frame = frame.subspan(header.headerSize);
  size_t begin = 0;
  while (frame.size() > kBlockHeaderBytes) {
    uint32_t block = 0;
    std::memcpy(&block, frame.data(), kBlockHeaderBytes);
    const size_t size = block >> 3;
    if ((block & 0b111) != kRawBlock << 1) break;  // coded, or the last one
    if (size > kFrameBlockBytes || size > chunk_bytes - begin ||
        size > frame.size() - kBlockHeaderBytes)
      return false;
    pieces_.push_back({begin, begin + size, frame.data() + kBlockHeaderBytes});
    frame = frame.subspan(kBlockHeaderBytes + size);
    begin += size;
  }
  const size_t left = chunk_bytes - begin, tail_bytes = kHeaderBytes + frame.size();
  const auto tail = std::span(grown(tail_, tail_bytes), tail_bytes);
  put_header(tail, left);
  std::copy(frame.begin(), frame.end(), tail.begin() + kHeaderBytes);
  if (decompress(tail, left) != left) return false;
  pieces_.push_back({begin, chunk_bytes, decoded_.data()});
  return true;
}

Result<void> PlaneFrameReader::open(std::span<const std::byte> frame, size_t chunk_bytes,
                                    size_t planes) {
  LOCKSTEP_CHECK(chunk_bytes % planes == 0, chunk_bytes);
  planes_ = planes;
  plane_bytes_ = chunk_bytes / planes;
  done_ = 0;
  at_ = {};
  pieces_.clear();
  if (open_spliced(frame, chunk_bytes)) return {};
  pieces_.assign(1, {0, chunk_bytes, nullptr});
  const size_t size = decompress(frame, chunk_bytes);
  if (ZSTD_isError(size)) return Error{Code::kCorrupt, text("zstd: ", ZSTD_getErrorName(size))};
  if (size != chunk_bytes)
    return Error{Code::kCorrupt, text(size, " decoded bytes, expected ", chunk_bytes)};
  pieces_[0].from = decoded_.data();
  return {};
}

void PlaneFrameReader::take(std::span<std::byte> words) {
  std::array<const std::byte*, kPlanes> planes{};
  while (!words.empty()) {
    size_t count = words.size() / planes_;
    for (size_t plane = 0; plane < planes_; ++plane) {
      const size_t byte = plane * plane_bytes_ + done_;
      while (byte >= pieces_[at_[plane]].end) ++at_[plane];
      const Piece& piece = pieces_[at_[plane]];
      planes[plane] = piece.from + (byte - piece.begin);
      count = std::min(count, piece.end - byte);
    }
    join_planes(planes, count, words.data(), planes_);
    words = words.subspan(planes_ * count);
    done_ += count;
  }
}

}  // namespace lockstep::checkpoint
