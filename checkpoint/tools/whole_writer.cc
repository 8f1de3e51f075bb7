#include "checkpoint/tools/whole_writer.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/record/manifest_parts.h"
#include "checkpoint/save/retention.h"
#include "checkpoint/shard_file/index_file.h"
#include "checkpoint/shard_file/shard_file_writer.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kTileElements = 4096;

int64_t tiles_of(const ManifestTensor& tensor) {
  return (element_count(tensor.global_shape) + kTileElements - 1) / kTileElements;
}

Result<void> refuse_second_attempt(FileSystem& file_system, const WholeCheckpoint& whole) {
  LOCKSTEP_TRY(const std::vector<std::string> names, file_system.list(whole.folder));
  for (const std::string& name : names) {
    const auto attempt = parse_attempt(name);
    if (!attempt || attempt->step != whole.attempt.step) continue;
    return Error{Code::kConfig, text((whole.folder / name).string(), " exists already, with step ",
                                     attempt->step, "; give another folder")};
  }
  return {};
}

class WholeWriter {
 public:
  WholeWriter(FileSystem& file_system, const WholeCheckpoint& whole, const Fill& fill,
              const Progress& progress)
      : file_system_(file_system),
        whole_(whole),
        fill_(fill),
        progress_(progress),
        directory_(whole.folder / attempt_name(whole.attempt)),
        pipeline_(whole.codec, whole.threads, /*nice=*/0) {
    for (const TensorPiece& piece : pieces_of_rank(whole.tensors, 0, 1))
      total_bytes_ += piece.size_bytes();
  }

  // Steps 1 to 4.
  Result<Manifest> write() {
    LOCKSTEP_RETURN_IF_ERROR(file_system_.make_directories(directory_));
    LOCKSTEP_RETURN_IF_ERROR(file_system_.sync_directory(whole_.folder));
    Manifest manifest = empty_manifest();
    if (whole_.world_size > kMostRanksInOneManifest) {
      LOCKSTEP_TRY(auto parts, write_parts());
      manifest.set_parts(std::move(parts));
    } else {
      LOCKSTEP_TRY(manifest.files, write_files(0, whole_.world_size));
    }
    LOCKSTEP_RETURN_IF_ERROR(add_fingerprints(manifest));
    LOCKSTEP_RETURN_IF_ERROR(check_coverage(manifest));
    if (manifest.parts.empty()) {
      LOCKSTEP_TRY(const std::string index, index_contents(manifest));
      manifest.index_xxh3 = hex64(xxh3_64(index));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        publish_file(file_system_, directory_ / kManifestName, manifest_text(manifest)));
    return manifest;
  }
  const std::filesystem::path& directory() const { return directory_; }

 private:
  Manifest empty_manifest() const {
    Manifest m;
    m.step = whole_.attempt.step;
    m.generation = whole_.attempt.generation;
    m.nonce = whole_.attempt.nonce;
    m.world_size = whole_.world_size;
    m.created_utc = utc_text(system_clock().unix_ns());
    m.codec = word_of(whole_.codec);
    m.chunking.elements = kChunkElements;
    m.set_tensors(whole_.tensors);
    m.trainer_state = whole_.trainer_state;
    m.validation_loss = whole_.validation_loss;
    return m;
  }

  // Those of ranks [first, last).
  Result<std::vector<ManifestFile>> write_files(int64_t first, int64_t last) {
    std::vector<ManifestFile> files;
    for (int64_t rank = first; rank < last; ++rank) {
      const auto pieces = pieces_of_rank(whole_.tensors, rank, whole_.world_size);
      if (pieces.empty()) continue;
      LOCKSTEP_TRY(ManifestFile file, write_file(rank, pieces));
      files.push_back(std::move(file));
    }
    return files;
  }

  Result<std::vector<ManifestPart>> write_parts() {
    const int64_t ranks = ranks_in_a_part(whole_.world_size);
    std::vector<ManifestPart> parts;
    for (int64_t first = 0; first < whole_.world_size; first += ranks) {
      LOCKSTEP_TRY(const auto files,
                   write_files(first, std::min(first + ranks, whole_.world_size)));
      if (files.empty()) continue;
      LOCKSTEP_TRY(ManifestPart part, publish_part(file_system_, directory_, first, files));
      parts.push_back(std::move(part));
    }
    return parts;
  }

  Result<ManifestFile> write_file(int64_t rank, const std::vector<TensorPiece>& pieces) {
    LOCKSTEP_TRY(ShardFileWriter writer,
                 ShardFileWriter::open(file_system_, pipeline_,
                                       {directory_, static_cast<int32_t>(rank), whole_.world_size,
                                        whole_.attempt.step, whole_.attempt.generation}));
    for (const auto& pieces_of_window : cut_windows(pieces))
      LOCKSTEP_RETURN_IF_ERROR(write_window(writer, pieces_of_window));
    LOCKSTEP_TRY(ShardDigest digest, writer.seal());
    for (const auto& [key, sum] : digest.sums) sums_[key] += sum;
    return std::move(digest.file);
  }

  Result<void> write_window(ShardFileWriter& writer, const std::vector<TensorPiece>& pieces) {
    window_.lay_out(pieces);
    LOCKSTEP_RETURN_IF_ERROR(fill_(window_.targets()));
    for (const auto& [piece, bytes] : window_.pieces()) {
      done_bytes_ += static_cast<int64_t>(bytes.size());
      LOCKSTEP_RETURN_IF_ERROR(writer.append(piece, bytes));
    }
    LOCKSTEP_RETURN_IF_ERROR(writer.flush());
    progress_(done_bytes_, total_bytes_);
    return {};
  }

  Result<void> add_fingerprints(Manifest& manifest) const {
    for (ManifestTensor& tensor : manifest.tensors)
      for (auto& [kind, expected] : tensor.fingerprint) {
        const std::string key = kind + "/" + tensor.name;
        const std::string found = hex64(sums_.at(key));
        if (!expected.empty() && expected != found)
          return Error{Code::kCorrupt, text(key, ": fingerprint ", found, ", expected ", expected)};
        expected = found;
      }
    return {};
  }

  FileSystem& file_system_;
  const WholeCheckpoint& whole_;
  const Fill& fill_;
  const Progress& progress_;
  const std::filesystem::path directory_;
  ChunkPipeline pipeline_;
  Window window_;
  Fingerprints sums_;
  int64_t done_bytes_ = 0, total_bytes_ = 0;
};

void warn_unless(const Result<void>& result, const char* what) {
  if (!result.ok())
    log_warning("the checkpoint is committed, but ", what, ": ", result.error().message);
}

}  // namespace

std::vector<TensorPiece> pieces_of_rank(const std::vector<ManifestTensor>& tensors, int64_t rank,
                                        int64_t world_size) {
  int64_t tiles = 0;
  for (const ManifestTensor& tensor : tensors) tiles += tiles_of(tensor);
  const int64_t first = tiles * rank / world_size, last = tiles * (rank + 1) / world_size;
  std::vector<TensorPiece> pieces;
  for (const Kind kind : kAllKinds) {
    int64_t at = 0;  // of the tensor's first tile
    for (const ManifestTensor& tensor : tensors) {
      const int64_t begin = std::max(first, at) - at;
      const int64_t end = std::min(last, at + tiles_of(tensor)) - at;
      at += tiles_of(tensor);
      if (begin >= end || !tensor.fingerprint.contains(kind_name(kind))) continue;
      const int64_t start = begin * kTileElements;
      const int64_t stop = std::min(end * kTileElements, element_count(tensor.global_shape));
      pieces.push_back(
          {tensor.name, kind, tensor.global_shape, start, stop - start, tensor.dtype_of(kind)});
    }
  }
  return pieces;
}

Result<std::filesystem::path> write_whole(FileSystem& file_system, const WholeCheckpoint& whole,
                                          const Fill& fill, const Progress& progress) {
  LOCKSTEP_CHECK(whole.world_size >= 1 && whole.world_size <= kMaxWrittenRanks, "world size ",
                 whole.world_size);
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(whole.folder));
  LOCKSTEP_RETURN_IF_ERROR(refuse_second_attempt(file_system, whole));
  WholeWriter writer(file_system, whole, fill, progress);
  const auto written = writer.write();
  if (!written.ok()) {
    const auto removed = remove_checkpoint(file_system, writer.directory());
    if (!removed.ok())
      log_warning("cannot remove the partial checkpoint of a failed write: ",
                  removed.error().message);
    return written.error();
  }
  const std::string name = attempt_name(whole.attempt);
  warn_unless(publish_file(file_system, whole.folder / kLatestName, name + "\n"),
              "LATEST was not written");
  if (!written.value().index_xxh3.empty())
    warn_unless(write_index(file_system, writer.directory(), written.value()),
                "its index.h5 was not written");
  return writer.directory();
}

}  // namespace lockstep::checkpoint
