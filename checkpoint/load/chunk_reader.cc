#include "checkpoint/load/chunk_reader.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "base/aligned_bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "checkpoint/record/catalog.h"

namespace lockstep::checkpoint {

struct ChunkReader::Buffers {
  explicit Buffers(Codec codec) : decoder(codec) {}
  ChunkDecoder decoder;
  AlignedBytes stored;
  std::vector<std::byte> raw;
};

namespace {

// The stored bytes of a chunk, read in whole blocks where the file has them whole.
Result<std::span<const std::byte>> read_stored(File& file, int64_t file_bytes, const ChunkRow& row,
                                               AlignedBytes& buffer) {
  const auto offset = static_cast<int64_t>(row.file_offset);
  const int64_t head = offset % static_cast<int64_t>(kBlockBytes);
  const size_t blocks =
      (static_cast<size_t>(head) + row.stored_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  buffer.reserve(blocks);
  const bool whole = offset - head + static_cast<int64_t>(blocks) <= file_bytes;
  const auto into = buffer.first(whole ? blocks : row.stored_bytes);
  LOCKSTEP_RETURN_IF_ERROR(file.read_at(into, whole ? offset - head : offset));
  return std::span<const std::byte>(
      into.subspan(whole ? static_cast<size_t>(head) : 0, row.stored_bytes));
}

}  // namespace

// Returns the fingerprint of the chunk's elements.
Result<uint64_t> ChunkReader::read(const ChunkRow& row, Buffers& buffers,
                                   std::span<std::byte> raw) const {
  LOCKSTEP_TRY(const auto stored, read_stored(*shard.file, entry.size_bytes, row, buffers.stored));
  if (crc32c(stored) != row.crc32c)
    return Error{Code::kCorrupt, "CRC32C differs from what was written"};
  if (check_fletcher && !fletcher32_matches(stored))
    return Error{Code::kCorrupt, "fletcher32 does not match: HDF5 would refuse this chunk"};
  LOCKSTEP_CHECK(row.dataset < entry.pieces.size() && raw.size() == row.raw_bytes, "dataset ",
                 row.dataset, " of ", entry.pieces.size(), ", ", raw.size(), " bytes for ",
                 row.raw_bytes);
  const TensorPiece& piece = entry.pieces[row.dataset];
  const int64_t element = piece.element_bytes();
  const int64_t first = int64_t{row.chunk} * (row.raw_bytes / element);
  LOCKSTEP_CHECK(first < piece.length, piece.dataset_path(), ": chunk ", row.chunk,
                 " begins at element ", first, " of ", piece.length);
  const int64_t real_bytes = std::min<int64_t>(row.raw_bytes, element * (piece.length - first));
  LOCKSTEP_TRY(const RawSums sums,
               buffers.decoder.decode(stored, row.filter_mask, raw, piece.flat_start + first,
                                      static_cast<size_t>(real_bytes), piece.dtype));
  if (sums.xxh3 != row.xxh3)
    return Error{Code::kCorrupt, "XXH3 of the decoded bytes differs from what was saved"};
  return sums.fingerprint;
}

int reader_threads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 2, 16);
}

std::vector<Error> ChunkReader::for_each(const std::vector<size_t>& rows, int threads,
                                         const Place& place, const Use& use) const {
  std::mutex mutex;
  std::map<size_t, Error> errors;
  const auto read_row = [&](size_t i, Buffers& buffers) {
    const ChunkRow& row = shard.rows[rows[i]];
    std::span<std::byte> raw = place(i);
    if (raw.empty()) {
      buffers.raw.resize(row.raw_bytes);
      raw = buffers.raw;
    }
    const auto fingerprint = read(row, buffers, raw);
    if (fingerprint.ok()) return use(i, raw, fingerprint.value());
    const std::lock_guard lock(mutex);
    errors.emplace(i, fingerprint.error().in(chunk_text(entry, row)));
  };
  parallel_for(rows.size(), threads, [&] {
    return [&, buffers = Buffers(codec)](size_t i) mutable { read_row(i, buffers); };
  });
  std::vector<Error> in_order;
  for (auto& [i, error] : errors) in_order.push_back(std::move(error));
  return in_order;
}

}  // namespace lockstep::checkpoint
