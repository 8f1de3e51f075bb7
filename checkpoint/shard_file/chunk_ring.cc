#include "checkpoint/shard_file/chunk_ring.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/byte_codec.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kLook_ns = 20 * kNsPerMs;  // at what rings no bell
constexpr size_t kErrorBytes = 1024, kPieceBytes = 64 << 10;
constexpr size_t kStoredBytes = 4 * static_cast<size_t>(kChunkElements) + sizeof(uint32_t);

enum class Sends : uint32_t { kMore, kNoMore, kFailed };
enum class Takes : uint32_t { kOn, kAll, kGaveUp };

struct Slot {
  int64_t index;
  uint64_t raw_bytes, stored_bytes, piece_bytes, xxh3;
  uint32_t filter_mask, crc32c;
  char piece[kPieceBytes];  // of a piece's first chunk
  alignas(64) std::byte stored[kStoredBytes];
};
struct Told {  // an error
  uint32_t code;
  char message[kErrorBytes];
};
// Each side writes its own half; the other reads it.
struct Ring {
  std::atomic<uint32_t> put_bell;
  std::atomic<Sends> sends;
  std::atomic<uint64_t> put;
  Told send_error;
  alignas(64) std::atomic<uint32_t> take_bell;
  std::atomic<Takes> takes;
  std::atomic<uint64_t> taken;
  Told take_error;
  Slot slots[kChunksInRing];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Zeros at first, which is what all members begin with.
Ring& ring_in(const SharedRegion& region) { return *reinterpret_cast<Ring*>(region.data()); }

void ring_bell(std::atomic<uint32_t>& bell) {
  bell.fetch_add(1);
  wake_all(bell);
}

void tell(const Error& error, Told& told) {
  const size_t size = std::min(error.message.size(), kErrorBytes - 1);
  told.code = static_cast<uint32_t>(error.code);
  std::memcpy(told.message, error.message.data(), size);
  told.message[size] = '\0';
}
Error told_error(const Told& told) {
  return {static_cast<Code>(std::min(told.code, static_cast<uint32_t>(Code::kBug))),
          std::string(told.message, ::strnlen(told.message, kErrorBytes))};
}

std::string piece_words(const TensorPiece& piece) {
  ByteWriter out;
  out.text(piece.name);
  out.number(static_cast<uint32_t>(piece.kind));
  out.number(static_cast<uint32_t>(piece.dtype));
  out.number(piece.flat_start);
  out.number(piece.length);
  out.number(static_cast<uint32_t>(piece.global_shape.size()));
  for (const int64_t extent : piece.global_shape) out.number(extent);
  return out.take();
}

Result<TensorPiece> parse_piece(std::string_view words) {
  ByteReader in(words);
  TensorPiece piece;
  piece.name = in.text();
  const auto kind = in.number<uint32_t>(), dtype = in.number<uint32_t>();
  piece.kind = static_cast<Kind>(kind);
  piece.dtype = static_cast<Dtype>(dtype);
  piece.flat_start = in.number<int64_t>();
  piece.length = in.number<int64_t>();
  piece.global_shape.resize(in.count(sizeof(int64_t)));
  for (int64_t& extent : piece.global_shape) extent = in.number<int64_t>();
  if (!in.finished() || kind >= std::size(kAllKinds) ||
      dtype > static_cast<uint32_t>(Dtype::kBf16) || piece.length < 1)
    return Error{Code::kCorrupt, "malformed piece"};
  return piece;
}

// Waits until `ready` gives a result, as the other side's `bell` rings.
template <typename T, typename Ready>
Result<T> wait_until(const std::atomic<uint32_t>& bell, const Patience& patience,
                     const Ready& ready) {
  int64_t moved_ns = system_clock().monotonic_ns();
  for (uint32_t seen = bell.load();;) {
    if (std::optional<Result<T>> now = ready()) return *std::move(now);
    if (*patience.gave_up) return Error{Code::kAborted, "the engine was stopped"};
    if (system_clock().monotonic_ns() - moved_ns > patience.deadline.count() * kNsPerMs)
      return Error{Code::kTimeout, text("no progress for ", patience.deadline.count(), " ms")};
    wait_while(bell, seen, kLook_ns);
    const uint32_t now = bell.load();
    if (now != seen) moved_ns = system_clock().monotonic_ns();
    seen = now;
  }
}

}  // namespace

Result<ChunkOutbox> ChunkOutbox::create(int writer, const SharedRegion& page, Patience patience) {
  LOCKSTEP_TRY(SharedRegion region, SharedRegion::create(sizeof(Ring)));
  return ChunkOutbox(std::move(region), writer, page, patience);
}

// Until `ready`, unless the writer gave up or died.
template <typename Ready>
Result<void> ChunkOutbox::wait_until(const Ready& ready) {
  Ring& ring = ring_in(region_);
  const auto waited =
      checkpoint::wait_until<bool>(ring.take_bell, patience_, [&]() -> std::optional<Result<bool>> {
        const bool lives = page_->creator_lives();  // asked first, as by an inbox
        if (ring.takes == Takes::kGaveUp)
          return Result<bool>(told_error(ring.take_error).in("gave up"));
        if (ready()) return Result<bool>(true);
        if (!lives) return Result<bool>(Error{Code::kIo, "its process died"});
        return std::nullopt;
      });
  if (!waited.ok()) return waited.error().in(text("rank ", writer_, ", which writes the file"));
  return {};
}

Result<void> ChunkOutbox::put(const FileChunk& chunk) {
  Ring& ring = ring_in(region_);
  const std::string piece = chunk.index == 0 ? piece_words(*chunk.piece) : "";
  const auto& bytes = chunk.bytes.bytes;
  if (piece.size() > kPieceBytes)
    return Error{Code::kBug, text(chunk.piece->dataset_path(), ": a name of ", piece.size(),
                                  " bytes does not fit in a chunk slot")};
  LOCKSTEP_CHECK(bytes.size() <= kStoredBytes, "a chunk of ", bytes.size(), " bytes");
  LOCKSTEP_CHECK(ring.sends == Sends::kMore, "chunk ", chunk.index, " comes after the last one");
  const uint64_t number = ring.put;
  LOCKSTEP_RETURN_IF_ERROR(wait_until([&] { return number - ring.taken < kChunksInRing; }));
  Slot& slot = ring.slots[number % kChunksInRing];
  slot.index = chunk.index;
  slot.raw_bytes = chunk.bytes.raw_bytes;
  slot.stored_bytes = bytes.size();
  slot.piece_bytes = piece.size();
  slot.xxh3 = chunk.bytes.xxh3;
  slot.filter_mask = chunk.bytes.filter_mask;
  slot.crc32c = chunk.bytes.crc32c;
  std::memcpy(slot.piece, piece.data(), piece.size());
  std::memcpy(slot.stored, bytes.data(), bytes.size());
  ring.put = number + 1;
  ring_bell(ring.put_bell);
  return {};
}

Result<void> ChunkOutbox::finish() {
  Ring& ring = ring_in(region_);
  LOCKSTEP_CHECK(ring.sends == Sends::kMore, "chunks end twice");
  ring.sends = Sends::kNoMore;
  ring_bell(ring.put_bell);
  return wait_until([&] { return ring.takes == Takes::kAll; });
}

void ChunkOutbox::fail(const Error& why) {
  Ring& ring = ring_in(region_);
  tell(why, ring.send_error);
  ring.sends = Sends::kFailed;
  ring_bell(ring.put_bell);
}

Result<ChunkInbox> ChunkInbox::open(int from, const std::string& address, Patience patience) {
  auto region = SharedRegion::open(address);
  if (region.ok() && region.value().size() != sizeof(Ring))
    region = Error{Code::kIo, text(address, " is not a ring of chunks")};
  if (!region.ok()) return region.error().in(text("rank ", from));
  return ChunkInbox(std::move(region).value(), from, patience);
}

// False: all were taken.
Result<bool> ChunkInbox::wait_for_one() {
  const Ring& ring = ring_in(region_);
  const auto ready = [&]() -> std::optional<Result<bool>> {
    // Who dies does nothing after: what it put before is seen, if it is asked for afterwards.
    const bool lives = region_.creator_lives();
    const Sends sends = ring.sends;
    if (sends == Sends::kFailed) return Result<bool>(told_error(ring.send_error));
    if (ring.put != ring.taken) return Result<bool>(true);
    if (sends == Sends::kNoMore) return Result<bool>(false);
    if (!lives) return Result<bool>(Error{Code::kIo, "its process died"});
    return std::nullopt;
  };
  return wait_until<bool>(ring.put_bell, patience_, ready);
}

Result<FileChunk> ChunkInbox::read_oldest() {
  const Ring& ring = ring_in(region_);
  const Slot& slot = ring.slots[ring.taken % kChunksInRing];
  const int64_t index = slot.index;
  const uint64_t stored_bytes = slot.stored_bytes, piece_bytes = slot.piece_bytes;
  if (stored_bytes > kStoredBytes || piece_bytes > kPieceBytes || (index != 0 && !piece_))
    return Error{Code::kCorrupt, text("malformed chunk from rank ", from_)};
  if (index == 0) {
    LOCKSTEP_TRY(TensorPiece piece, parse_piece({slot.piece, piece_bytes}));
    piece_ = std::make_unique<TensorPiece>(std::move(piece));
  }
  const FileChunk chunk{piece_.get(),
                        index,
                        {std::span(slot.stored).first(stored_bytes), slot.raw_bytes,
                         slot.filter_mask, slot.crc32c, slot.xxh3}};
  if (crc32c(chunk.bytes.bytes) != chunk.bytes.crc32c)
    return Error{Code::kCorrupt, text(piece_->dataset_path(), " chunk ", index,
                                      ": CRC32C differs from what was handed over")};
  return chunk;
}

Result<std::optional<FileChunk>> ChunkInbox::front() {
  const auto ready = wait_for_one();
  if (!ready.ok()) return ready.error().in(text("rank ", from_));
  if (!ready.value()) {
    Ring& ring = ring_in(region_);
    ring.takes = Takes::kAll;
    ring_bell(ring.take_bell);
    return std::optional<FileChunk>();
  }
  auto chunk = read_oldest();
  if (!chunk.ok()) return chunk.error().in(text("rank ", from_));
  in_hand_ = true;
  return std::optional<FileChunk>(chunk.value());
}

void ChunkInbox::pop() {
  Ring& ring = ring_in(region_);
  LOCKSTEP_CHECK(std::exchange(in_hand_, false), "no chunk of rank ", from_, " is there to pop");
  ++ring.taken;
  ring_bell(ring.take_bell);
}

void ChunkInbox::abandon(const Error& why) {
  Ring& ring = ring_in(region_);
  if (ring.takes == Takes::kAll) return;
  tell(why, ring.take_error);
  ring.takes = Takes::kGaveUp;
  ring_bell(ring.take_bell);
}

}  // namespace lockstep::checkpoint
