#include "checkpoint/chunk_reader.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "base/hash.h"
#include "base/text.h"

namespace lockstep::checkpoint {

struct ChunkReader::Buffers {
  explicit Buffers(Codec codec) : decoder(codec) {}
  ChunkDecoder decoder;
  std::vector<std::byte> stored, raw;
};

Result<std::span<const std::byte>> ChunkReader::read(const ChunkRow& row, Buffers& buffers) const {
  buffers.stored.resize(row.stored_bytes);
  buffers.raw.resize(row.raw_bytes);
  const auto offset = static_cast<int64_t>(row.file_offset);
  LOCKSTEP_RETURN_IF_ERROR(shard.file->read_at(buffers.stored, offset));
  if (crc32c(buffers.stored) != row.crc32c)
    return Error{Code::kCorrupt, "CRC32C differs from what was written"};
  if (check_fletcher && !fletcher32_matches(buffers.stored))
    return Error{Code::kCorrupt, "fletcher32 does not match: HDF5 would refuse this chunk"};
  LOCKSTEP_RETURN_IF_ERROR(buffers.decoder.decode(buffers.stored, row.filter_mask, buffers.raw));
  if (xxh3_64(buffers.raw) != row.xxh3)
    return Error{Code::kCorrupt, "XXH3 of the decoded bytes differs from what was saved"};
  return std::span<const std::byte>(buffers.raw);
}

std::vector<Error> ChunkReader::for_each(
    const std::vector<size_t>& rows, int threads,
    const std::function<void(size_t, std::span<const std::byte>)>& use) const {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::map<size_t, Error> errors;
  const auto work = [&] {
    Buffers buffers(codec);
    for (size_t i = next++; i < rows.size(); i = next++) {
      const ChunkRow& row = shard.rows[rows[i]];
      const auto raw = read(row, buffers);
      if (raw.ok()) {
        use(i, raw.value());
        continue;
      }
      const std::lock_guard lock(mutex);
      errors.emplace(i, raw.error().in(chunk_text(entry, row)));
    }
  };
  std::vector<std::thread> others;
  const size_t count = std::min(rows.size(), static_cast<size_t>(std::max(1, threads)));
  for (size_t i = 1; i < count; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  std::vector<Error> in_order;
  for (auto& [i, error] : errors) in_order.push_back(std::move(error));
  return in_order;
}

}  // namespace lockstep::checkpoint
