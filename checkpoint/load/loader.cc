// 1. plan: which chunks overlap which targets; 2. file by file, check the
// file's size, table and metadata; 3. read, check, decode and copy its chunks on several threads;
// 4. check the fingerprints of tensors that are whole here.
#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/load/chunk_reader.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/load/selection.h"

namespace lockstep::checkpoint {
namespace {

struct Copy {  // elements of one chunk that one target wants
  size_t target;
  int64_t target_element, chunk_element, elements;
};
struct Overlap {  // of one chunk
  size_t piece;
  int64_t chunk;
  std::vector<Copy> copies;
};
using ByChunk = std::map<std::pair<size_t, int64_t>, std::vector<Copy>>;  // (piece, chunk)

// Whether the checkpoint has what the targets want.
Result<void> check_names(const Manifest& manifest, const std::vector<LiveTarget>& targets) {
  std::vector<TensorPiece> wanted;
  for (const auto& [piece, bytes] : targets) wanted.push_back(piece);
  return check_match(manifest, wanted, {});
}

// Adds the chunks of `piece` that overlap `target`.
void add_overlap(const Manifest& manifest, const TensorPiece& piece, size_t piece_index,
                 const TensorPiece& target, size_t target_index, ByChunk& chunks) {
  const int64_t first = std::max(piece.flat_start, target.flat_start);
  const int64_t last = std::min(piece.flat_start + piece.length, target.flat_start + target.length);
  const int64_t size = chunk_elements_of(piece.length, manifest.chunking);
  LOCKSTEP_CHECK(first >= last || size > 0, piece.dataset_path(), " in chunks of ", size);
  for (int64_t at = first; at < last;) {
    const int64_t in_piece = at - piece.flat_start;
    const int64_t chunk = in_piece / size;
    const int64_t end = std::min(last, piece.flat_start + (chunk + 1) * size);
    chunks[{piece_index, chunk}].push_back(
        {target_index, at - target.flat_start, in_piece % size, end - at});
    at = end;
  }
}

class Loader {
 public:
  Loader(FileSystem& file_system, const std::filesystem::path& directory, const Manifest& manifest,
         Codec codec, const std::vector<LiveTarget>& targets)
      : file_system_(file_system),
        directory_(directory),
        manifest_(manifest),
        codec_(codec),
        targets_(targets),
        filled_(targets.size()),
        sums_(targets.size()) {
    for (size_t i = 0; i < targets.size(); ++i)
      by_tensor_[targets[i].piece.tensor_key()].push_back(i);
  }

  Fingerprints sums() const {
    Fingerprints sums;
    for (size_t i = 0; i < targets_.size(); ++i) sums[targets_[i].piece.tensor_key()] += sums_[i];
    return sums;
  }

  // The files' pieces are each tensor once, so what was planned from them is each target once.
  void check_filled() const {
    for (size_t i = 0; i < targets_.size(); ++i)
      LOCKSTEP_CHECK(filled_[i] == targets_[i].piece.length, targets_[i].piece.dataset_path(), ": ",
                     filled_[i], " elements were read for ", targets_[i].piece.length);
  }

  Result<int64_t> load_file(const ManifestFile& entry, int threads) {
    const std::vector<Overlap> overlaps = plan(entry);
    for (const Overlap& overlap : overlaps)
      for (const Copy& copy : overlap.copies) filled_[copy.target] += copy.elements;
    if (overlaps.empty()) return int64_t{0};
    LOCKSTEP_TRY(const ShardFile shard, open_shard(file_system_, directory_, manifest_, entry));
    std::vector<size_t> rows;
    int64_t read_bytes = 0;
    for (const Overlap& o : overlaps) {
      rows.push_back(static_cast<size_t>(shard.first_row[o.piece] + o.chunk));
      read_bytes += shard.rows[rows.back()].stored_bytes;
    }
    const ChunkReader reader{entry, shard, codec_};
    const auto errors = reader.for_each(
        rows, threads,
        [&](size_t i) { return whole_place(overlaps[i], shard.rows[rows[i]].raw_bytes); },
        [&](size_t i, std::span<const std::byte> raw, uint64_t fingerprint) {
          if (whole_place(overlaps[i], raw.size()).empty())
            copy(overlaps[i], raw);
          else
            sums_[overlaps[i].copies[0].target] += fingerprint;
        });
    if (!errors.empty()) return errors.front();
    return read_bytes;
  }

 private:
  std::vector<Overlap> plan(const ManifestFile& entry) const {
    ByChunk chunks;
    for (size_t p = 0; p < entry.pieces.size(); ++p) {
      const auto at = by_tensor_.find(entry.pieces[p].tensor_key());
      if (at == by_tensor_.end()) continue;
      for (size_t t : at->second)
        add_overlap(manifest_, entry.pieces[p], p, targets_[t].piece, t, chunks);
    }
    std::vector<Overlap> overlaps;
    for (auto& [key, copies] : chunks)
      overlaps.push_back({key.first, key.second, std::move(copies)});
    return overlaps;
  }

  // Where a chunk that one target wants whole is decoded to at once; empty: it is cut.
  std::span<std::byte> whole_place(const Overlap& overlap, size_t raw_bytes) const {
    const Copy& c = overlap.copies[0];
    const LiveTarget& target = targets_[c.target];
    const int64_t element = target.piece.element_bytes();
    if (overlap.copies.size() > 1 || element * c.elements != static_cast<int64_t>(raw_bytes))
      return {};
    return target.bytes.subspan(static_cast<size_t>(element * c.target_element), raw_bytes);
  }

  // Copies of different chunks never meet, so threads need no lock.
  void copy(const Overlap& overlap, std::span<const std::byte> raw) {
    for (const Copy& c : overlap.copies) {
      const LiveTarget& target = targets_[c.target];
      const int64_t element = target.piece.element_bytes();
      const auto size = static_cast<size_t>(element * c.elements);
      sums_[c.target] += copy_with_fingerprint(
          raw.subspan(static_cast<size_t>(element * c.chunk_element), size),
          target.bytes.subspan(static_cast<size_t>(element * c.target_element), size),
          target.piece.flat_start + c.target_element, target.piece.dtype);
    }
  }

  FileSystem& file_system_;
  const std::filesystem::path& directory_;
  const Manifest& manifest_;
  const Codec codec_;
  const std::vector<LiveTarget>& targets_;
  std::map<std::string, std::vector<size_t>> by_tensor_;
  std::vector<int64_t> filled_;              // elements of each target that were planned
  std::vector<std::atomic<uint64_t>> sums_;  // of each target
};

// Only tensors whose every element is here once can be compared.
Result<void> check_whole(const Manifest& manifest, const std::vector<LiveTarget>& targets,
                         const Fingerprints& sums) {
  std::map<std::string, std::vector<const LiveTarget*>> by_tensor;
  for (const LiveTarget& target : targets) by_tensor[target.piece.tensor_key()].push_back(&target);
  Fingerprints whole;
  for (auto& [key, parts] : by_tensor) {
    std::sort(parts.begin(), parts.end(), [](const auto* a, const auto* b) {
      return a->piece.flat_start < b->piece.flat_start;
    });
    int64_t end = 0;
    for (const LiveTarget* part : parts)
      end = part->piece.flat_start == end ? end + part->piece.length : -1;
    if (end == element_count(parts.front()->piece.global_shape)) whole[key] = sums.at(key);
  }
  return check_fingerprints(manifest, whole);
}

}  // namespace

Result<LoadStatistics> load_pieces(FileSystem& file_system, const std::filesystem::path& directory,
                                   const Manifest& manifest, std::vector<LiveTarget> targets,
                                   int threads) {
  const double start_s = system_clock().monotonic_s();
  LOCKSTEP_RETURN_IF_ERROR(check_names(manifest, targets));
  LOCKSTEP_TRY(const Codec codec, codec_from_name(manifest.codec));
  LoadStatistics statistics;
  for (const auto& [piece, bytes] : targets) {
    const bool fits = piece.flat_start >= 0 && piece.length >= 0 &&
                      piece.flat_start + piece.length <= element_count(piece.global_shape) &&
                      static_cast<int64_t>(bytes.size()) == piece.size_bytes();
    if (!fits)
      return Error{Code::kBug,
                   text(piece.dataset_path(), ": ", piece.length, " elements in ", bytes.size(),
                        " bytes do not fit the shape ", shape_text(piece.global_shape))};
    statistics.wanted_bytes += static_cast<int64_t>(bytes.size());
  }
  Loader loader(file_system, directory, manifest, codec, targets);
  for (const ManifestFile& entry : manifest.files) {
    LOCKSTEP_TRY(const int64_t read_bytes, loader.load_file(entry, threads));
    statistics.read_bytes += read_bytes;
  }
  loader.check_filled();
  statistics.sums = loader.sums();
  if (auto checked = check_whole(manifest, targets, statistics.sums); !checked.ok())
    return checked.error().in(directory.string());
  statistics.seconds = system_clock().monotonic_s() - start_s;
  return statistics;
}

}  // namespace lockstep::checkpoint
