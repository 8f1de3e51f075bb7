#include "checkpoint/tools/export.h"

#include <utility>

#include "base/safetensors.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

using Path = std::filesystem::path;

Result<void> refuse_to_overwrite(FileSystem& file_system, const Path& folder) {
  LOCKSTEP_TRY(const std::vector<std::string> names, file_system.list(folder));
  for (const std::string& name : names)
    if (name.ends_with(kSafetensorsSuffix) || name == kSafetensorsIndexFile ||
        name == kManifestName)
      return Error{Code::kConfig,
                   text((folder / name).string(), " exists already; give another folder")};
  return {};
}

// The tensors that are asked for, whole, in the order of the files.
Result<std::vector<TensorPiece>> exported_pieces(const Manifest& manifest,
                                                 const ExportOptions& options) {
  std::vector<TensorPiece> all;
  for (const Kind kind : options.kinds) {
    const std::vector<TensorPiece> pieces = whole_pieces(manifest, kind);
    if (pieces.empty() && options.kinds.size() == 1)
      return Error{Code::kConfig,
                   text("the checkpoint has no tensors of the kind ", kind_name(kind))};
    all.insert(all.end(), pieces.begin(), pieces.end());
  }
  return all;
}

std::vector<SafetensorsFile> planned_files(const std::vector<TensorPiece>& pieces,
                                           const ExportOptions& options) {
  std::vector<SafetensorsEntry> entries;
  for (const TensorPiece& piece : pieces)
    entries.push_back({options.kinds.size() == 1 ? piece.name : piece.tensor_key(),
                       dtype_name(options.dtype), piece.global_shape});
  return cut_into_files(entries, options.max_shard_bytes);
}

class Exporter {
 public:
  Exporter(FileSystem& file_system, const ExportOptions& options, CheckpointSource& source,
           std::vector<TensorPiece> pieces, const Progress& progress)
      : file_system_(file_system),
        options_(options),
        source_(source),
        pieces_(std::move(pieces)),
        files_(planned_files(pieces_, options)),
        progress_(progress) {
    for (const SafetensorsFile& file : files_) total_bytes_ += file.data_bytes();
  }

  Result<std::vector<Path>> run() {
    auto written = write_and_publish();
    if (!written.ok())
      for (const SafetensorsFile& each : files_) (void)file_system_.remove(temporary(each)).ok();
    return written;
  }

 private:
  Path temporary(const SafetensorsFile& each) const {
    return options_.folder / (each.name + ".tmp");
  }

  Result<std::vector<Path>> write_and_publish() {
    for (const SafetensorsFile& each : files_) LOCKSTEP_RETURN_IF_ERROR(write(each));
    LOCKSTEP_RETURN_IF_ERROR(source_.check_sums());
    std::vector<Path> paths;
    for (const SafetensorsFile& each : files_) {
      paths.push_back(options_.folder / each.name);
      LOCKSTEP_RETURN_IF_ERROR(file_system_.rename(temporary(each), paths.back()));
    }
    LOCKSTEP_RETURN_IF_ERROR(file_system_.sync_directory(options_.folder));
    if (files_.size() == 1) return paths;
    paths.push_back(options_.folder / kSafetensorsIndexFile);
    LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system_, paths.back(), safetensors_index(files_)));
    return paths;
  }

  Result<void> write(const SafetensorsFile& planned) {
    LOCKSTEP_TRY(const auto file, file_system_.create(temporary(planned)));
    LOCKSTEP_RETURN_IF_ERROR(file->write_at(as_bytes(planned.preamble), 0));
    auto at = static_cast<int64_t>(planned.preamble.size());
    const auto first = pieces_.begin() + done_pieces_;
    done_pieces_ += static_cast<int64_t>(planned.header.entries.size());
    for (const auto& pieces : cut_windows({first, pieces_.begin() + done_pieces_})) {
      window_.lay_out(pieces);
      LOCKSTEP_RETURN_IF_ERROR(source_.read(window_.targets()));
      for (const auto& [piece, bytes] : window_.pieces()) {
        widened_.resize(static_cast<size_t>(piece.length * dtype_bytes(Dtype::kF32)));
        widen(piece.dtype, bytes, widened_);
        narrowed_.resize(static_cast<size_t>(piece.length * dtype_bytes(options_.dtype)));
        narrow(options_.dtype, widened_, narrowed_);
        const auto size = static_cast<int64_t>(narrowed_.size());
        LOCKSTEP_RETURN_IF_ERROR(file->write_at(narrowed_, at));
        file->start_writeback(at, size);
        at += size;
        done_bytes_ += size;
      }
      progress_(done_bytes_, total_bytes_);
    }
    return file->sync();
  }

  FileSystem& file_system_;
  const ExportOptions& options_;
  CheckpointSource& source_;
  const std::vector<TensorPiece> pieces_;  // one after the other, those of each file
  const std::vector<SafetensorsFile> files_;
  const Progress& progress_;
  Window window_;
  std::vector<std::byte> widened_, narrowed_;
  int64_t done_pieces_ = 0, done_bytes_ = 0, total_bytes_ = 0;
};

}  // namespace

Result<std::vector<Path>> export_safetensors(FileSystem& file_system, const ExportOptions& options,
                                             const Progress& progress) {
  LOCKSTEP_TRY(CheckpointSource source,
               CheckpointSource::open(file_system, options.source, options.threads));
  LOCKSTEP_TRY(std::vector<TensorPiece> pieces, exported_pieces(source.manifest(), options));
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(options.folder));
  LOCKSTEP_RETURN_IF_ERROR(refuse_to_overwrite(file_system, options.folder));
  return Exporter(file_system, options, source, std::move(pieces), progress).run();
}

}  // namespace lockstep::checkpoint
