#include "checkpoint/snapshot/memory_slot.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

constexpr char kMagic[8] = {'L', 'S', 'M', 'E', 'M', '0', '0', '1'};  // with the format's version
constexpr int64_t kPage = 4096;
constexpr int64_t kStateRoom = 64 << 10;         // for the trainer state and longer numbers
constexpr int64_t kMaxHeaderBytes = 1 << 30;     // beyond it the prefix is damaged
constexpr size_t kBlockBytes = size_t{1} << 20;  // fingerprinted and copied while in cache

struct Prefix {  // as in the file, little-endian
  char magic[8];
  uint64_t run_id;
  int64_t committed_step, header_bytes, data_offset;
  uint64_t complete;
};
static_assert(sizeof(Prefix) == kSlotPrefixBytes);
static_assert(offsetof(Prefix, complete) == kSlotCompleteOffset);

std::span<const std::byte> bytes_of(const Prefix& prefix) {
  return std::as_bytes(std::span(&prefix, 1));
}

// Never 0, which stands for "not complete".
uint64_t seal_of(const Prefix& prefix, std::string_view header) {
  const uint64_t seed = xxh3_64(bytes_of(prefix).first(kSlotCompleteOffset));
  return std::max<uint64_t>(1, xxh3_64(header, seed));
}

Manifest part_of(const SnapshotTag& tag, std::span<const LivePiece> pieces,
                 const Fingerprints& sums) {
  Manifest m;
  m.step = tag.step;
  m.generation = tag.generation;
  m.world_size = tag.world_size;
  m.nonce = tag.nonce;
  m.created_utc = utc_text(system_clock().unix_ns());
  m.codec = "none";
  m.trainer_state = tag.trainer_state;
  ManifestFile file;
  file.name = text("rank_", tag.rank);
  for (const auto& [piece, bytes] : pieces) {
    file.pieces.push_back(piece);
    file.size_bytes += static_cast<int64_t>(bytes.size());
  }
  m.set_tensors(tensors_of(pieces, sums));
  m.files.push_back(std::move(file));
  return m;
}

}  // namespace

SlotSize slot_size(std::span<const LivePiece> layout) {
  Fingerprints none;
  int64_t data_bytes = 0;
  for (const auto& [piece, bytes] : layout) {
    none[piece.tensor_key()] = 0;
    data_bytes += static_cast<int64_t>(bytes.size());
  }
  const SnapshotTag tag{.nonce = "", .trainer_state = "{}"};
  const auto header = static_cast<int64_t>(manifest_text(part_of(tag, layout, none)).size());
  const int64_t offset = (kSlotPrefixBytes + header + kStateRoom + kPage - 1) / kPage * kPage;
  return {offset, offset + data_bytes};
}

Result<SlotFile> SlotFile::create(FileSystem& file_system, const std::filesystem::path& path,
                                  SlotSize size) {
  LOCKSTEP_TRY(auto file, file_system.create(path));
  return SlotFile(std::move(file), size);
}

Result<void> SlotFile::write(const SnapshotTag& tag, StateSource& state,
                             const std::function<void()>& on_read) {
  LOCKSTEP_CHECK(tag.step >= 0 && tag.rank >= 0 && tag.rank < tag.world_size, "step ", tag.step,
                 " of rank ", tag.rank, " of ", tag.world_size);
  auto emptied = set_complete(0);
  auto copied = emptied.ok() ? write_pieces(state, on_read) : emptied.error();
  on_read();
  LOCKSTEP_TRY(const Fingerprints sums, std::move(copied));
  Prefix prefix{};
  std::memcpy(prefix.magic, kMagic, sizeof kMagic);
  prefix.run_id = tag.run_id;
  prefix.committed_step = tag.committed_step;
  prefix.data_offset = size_.data_offset;
  const std::string header = manifest_text(part_of(tag, state.layout(), sums));
  prefix.header_bytes = static_cast<int64_t>(header.size());
  if (kSlotPrefixBytes + prefix.header_bytes > prefix.data_offset)
    return Error{Code::kConfig, text("the trainer state is too long for a memory snapshot: ",
                                     tag.trainer_state.size(), " bytes")};
  LOCKSTEP_RETURN_IF_ERROR(file_->write_at(as_bytes(header), kSlotPrefixBytes));
  LOCKSTEP_RETURN_IF_ERROR(file_->write_at(bytes_of(prefix).first(kSlotCompleteOffset), 0));
  return set_complete(seal_of(prefix, header));
}

Result<Fingerprints> SlotFile::write_pieces(StateSource& state,
                                            const std::function<void()>& on_read) {
  Fingerprints sums;
  int64_t file_offset = size_.data_offset;
  StateSource::Reading reading;
  reading.take = [&](const StateSource::Part& part) -> Result<void> {
    const TensorPiece& piece = state.layout()[part.piece].piece;
    LOCKSTEP_CHECK(file_offset + std::ssize(part.bytes) <= size_.file_bytes, piece.dataset_path(),
                   ": ", part.bytes.size(), " bytes @", file_offset, " in a slot of ",
                   size_.file_bytes);
    LOCKSTEP_RETURN_IF_ERROR(write_part(piece, part, file_offset, sums[piece.tensor_key()]));
    file_offset += static_cast<int64_t>(part.bytes.size());
    return {};
  };
  reading.may_change = on_read;
  LOCKSTEP_RETURN_IF_ERROR(state.read(reading));
  LOCKSTEP_CHECK(file_offset == size_.file_bytes, "pieces end at ", file_offset, " in a slot of ",
                 size_.file_bytes);
  return sums;
}

Result<void> SlotFile::write_part(const TensorPiece& piece, const StateSource::Part& part,
                                  int64_t file_offset, uint64_t& sum) {
  for (size_t at = 0; at < part.bytes.size(); at += kBlockBytes) {
    const auto block = part.bytes.subspan(at, std::min(kBlockBytes, part.bytes.size() - at));
    const auto done = static_cast<int64_t>(part.offset + at) / piece.element_bytes();
    sum += fingerprint(block, piece.flat_start + done, piece.dtype);
    LOCKSTEP_RETURN_IF_ERROR(file_->write_at(block, file_offset + static_cast<int64_t>(at)));
  }
  return {};
}

Result<void> SlotFile::read_raw(std::span<std::byte> bytes, int64_t offset) {
  LOCKSTEP_CHECK(offset >= 0 && offset + std::ssize(bytes) <= std::max(offset, size_.file_bytes),
                 bytes.size(), " bytes @", offset, " of a slot of ", size_.file_bytes);
  return file_->read_at(bytes, offset);
}
Result<void> SlotFile::write_raw(std::span<const std::byte> bytes, int64_t offset) {
  LOCKSTEP_CHECK(offset >= 0 && offset + std::ssize(bytes) <= std::max(offset, size_.file_bytes),
                 bytes.size(), " bytes @", offset, " of a slot of ", size_.file_bytes);
  return file_->write_at(bytes, offset);
}
Result<void> SlotFile::set_complete(uint64_t word) {
  return file_->write_at(std::as_bytes(std::span(&word, 1)), kSlotCompleteOffset);
}

Result<SlotHeader> read_slot(FileSystem& file_system, const std::filesystem::path& path,
                             uint64_t run_id) {
  const auto damaged = [&](const std::string& what) {
    return Error{Code::kCorrupt, text(path.string(), ": ", what)};
  };
  LOCKSTEP_TRY(const auto file, file_system.open(path));
  LOCKSTEP_TRY(const int64_t size_bytes, file->size_bytes());
  Prefix prefix{};
  LOCKSTEP_RETURN_IF_ERROR(file->read_at(std::as_writable_bytes(std::span(&prefix, 1)), 0));
  if (prefix.complete == 0)
    return Error{Code::kAborted, text(path.string(), ": it holds no complete snapshot")};
  if (std::memcmp(prefix.magic, kMagic, sizeof kMagic) != 0)
    return damaged("it is not a snapshot memory slot");
  if (prefix.run_id != run_id)
    return Error{Code::kNotFound, text(path.string(), ": it belongs to another run")};
  const bool sane = prefix.header_bytes > 0 && prefix.header_bytes < kMaxHeaderBytes &&
                    prefix.data_offset >= kSlotPrefixBytes + prefix.header_bytes &&
                    prefix.data_offset <= size_bytes;
  if (!sane) return damaged("its prefix is damaged");
  std::string header(static_cast<size_t>(prefix.header_bytes), '\0');
  LOCKSTEP_RETURN_IF_ERROR(
      file->read_at(std::as_writable_bytes(std::span(header)), kSlotPrefixBytes));
  if (seal_of(prefix, header) != prefix.complete)
    return damaged("its header does not match its seal");
  auto part = parse_manifest(header, Coverage::kPart);
  if (!part.ok()) return damaged(part.error().message);
  const bool whole = part.value().files.size() == 1 &&
                     prefix.data_offset + part.value().files[0].size_bytes <= size_bytes;
  if (!whole) return damaged("it is shorter than its header says");
  return SlotHeader{prefix.committed_step, prefix.data_offset, std::move(part).value()};
}

}  // namespace lockstep::checkpoint
