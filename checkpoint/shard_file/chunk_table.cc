#include "checkpoint/shard_file/chunk_table.h"

#include <algorithm>

#include "base/hash.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kReadBytes = int64_t{1} << 20;

// The rows are those that the pieces' lengths imply. Errors: kCorrupt.
Result<std::vector<int64_t>> first_rows(const Manifest& manifest, const ManifestFile& entry,
                                        const std::vector<ChunkRow>& rows) {
  std::vector<int64_t> first;
  size_t at = 0;
  for (size_t piece = 0; piece < entry.pieces.size(); ++piece) {
    const int64_t length = entry.pieces[piece].length;
    const auto raw_bytes =
        entry.pieces[piece].element_bytes() * chunk_elements_of(length, manifest.chunking);
    first.push_back(static_cast<int64_t>(at));
    for (int64_t chunk = 0; chunk < chunk_count(length, manifest.chunking); ++chunk, ++at) {
      const bool right = at < rows.size() && rows[at].dataset == piece && rows[at].chunk == chunk &&
                         rows[at].raw_bytes == raw_bytes;
      if (!right)
        return Error{Code::kCorrupt, text("row ", at, " does not describe ",
                                          entry.pieces[piece].dataset_path(), " chunk ", chunk)};
    }
  }
  if (at != rows.size())
    return Error{Code::kCorrupt, text("it has ", rows.size() - at, " rows too many")};
  return first;
}

Result<ShardFile> open_checked(FileSystem& file_system, const std::filesystem::path& path,
                               const Manifest& manifest, const ManifestFile& entry) {
  ShardFile shard;
  LOCKSTEP_TRY(shard.file, file_system.open_direct(path));
  LOCKSTEP_TRY(const int64_t size_bytes, shard.file->size_bytes());
  if (size_bytes != entry.size_bytes)
    return Error{Code::kCorrupt, text(path.string(), " has ", size_bytes, " bytes, but ",
                                      entry.size_bytes, " were written")};
  const std::string table = path.string() + ":" + kChunkTablePath;
  const int64_t table_bytes = entry.chunk_rows * static_cast<int64_t>(sizeof(ChunkRow));
  if (entry.chunk_rows < 0 || entry.chunk_table_offset < 0 ||
      entry.chunk_table_offset > size_bytes - table_bytes)
    return Error{Code::kCorrupt, text(table, " lies outside the file")};
  shard.rows.resize(static_cast<size_t>(entry.chunk_rows));
  const auto bytes = std::as_writable_bytes(std::span(shard.rows));
  LOCKSTEP_RETURN_IF_ERROR(shard.file->read_at(bytes, entry.chunk_table_offset));
  if (hex64(xxh3_64(bytes)) != entry.chunk_table_xxh3)
    return Error{Code::kCorrupt,
                 text(table, " @", entry.chunk_table_offset, " differs from what was written")};
  auto first = first_rows(manifest, entry, shard.rows);
  if (!first.ok()) return first.error().in(table);
  shard.first_row = std::move(first).value();
  const auto outside = outside_hash(
      size_bytes, shard.rows,
      [&](std::span<std::byte> part, int64_t at) { return shard.file->read_at(part, at); });
  if (!outside.ok()) return outside.error().in(path.string());
  if (hex64(outside.value()) != entry.outside_xxh3)
    return Error{Code::kCorrupt,
                 text(path.string(),
                      ": bytes outside the chunks (HDF5's own: superblock, headers, "
                      "indexes) differ from what was written")};
  return shard;
}

}  // namespace

int64_t chunk_elements_of(int64_t length, const Chunking& chunking) {
  if (!chunking.equal) return std::min(length, chunking.elements);
  const int64_t count = (length + chunking.elements - 1) / chunking.elements;
  return (length + count - 1) / count;
}

int64_t chunk_count(int64_t length, const Chunking& chunking) {
  const int64_t size = chunk_elements_of(length, chunking);
  return (length + size - 1) / size;
}

Result<uint64_t> outside_hash(int64_t size_bytes, std::span<const ChunkRow> rows,
                              const ReadAt& read) {
  std::vector<std::pair<int64_t, int64_t>> chunks;
  for (const ChunkRow& row : rows)
    chunks.emplace_back(static_cast<int64_t>(row.file_offset), row.stored_bytes);
  chunks.emplace_back(size_bytes, 0);
  std::sort(chunks.begin(), chunks.end());
  Xxh3Stream hash;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kReadBytes, size_bytes)));
  int64_t at = 0;
  for (const auto& [offset, length] : chunks) {
    if (offset < at || offset > size_bytes - length)
      return Error{Code::kCorrupt, text("the chunk @", offset, " overlaps another or ends after ",
                                        size_bytes, " bytes")};
    while (at < offset) {
      const auto part = std::span(buffer).first(
          static_cast<size_t>(std::min(offset - at, static_cast<int64_t>(buffer.size()))));
      LOCKSTEP_RETURN_IF_ERROR(read(part, at));
      hash.update(part);
      at += static_cast<int64_t>(part.size());
    }
    at = offset + length;
  }
  return hash.digest();
}

Result<ShardFile> open_shard(FileSystem& file_system, const std::filesystem::path& directory,
                             const Manifest& manifest, const ManifestFile& entry) {
  return open_checked(file_system, directory / entry.name, manifest, entry);
}

std::string chunk_text(const ManifestFile& entry, const ChunkRow& row) {
  return text(entry.name, ":", entry.pieces[row.dataset].dataset_path(), " chunk ", row.chunk, " @",
              row.file_offset);
}

}  // namespace lockstep::checkpoint
