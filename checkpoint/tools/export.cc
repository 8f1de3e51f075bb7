#include "checkpoint/tools/export.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

using Path = std::filesystem::path;

constexpr const char* kSuffix = ".safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

int64_t data_bytes(const ExportShard& shard) {
  return shard.header.entries.back().end - shard.header.entries.front().begin;
}

std::string numbered(size_t number, size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu%s", number, count, kSuffix);
  return name;
}

Result<void> refuse_to_overwrite(FileSystem& file_system, const Path& folder) {
  LOCKSTEP_TRY(const std::vector<std::string> names, file_system.list(folder));
  for (const std::string& name : names)
    if (name.ends_with(kSuffix) || name == kIndexFile || name == kManifestName)
      return Error{Code::kConfig,
                   text((folder / name).string(), " is there already; give another folder")};
  return {};
}

std::string index_text(const std::vector<ExportShard>& shards) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  int64_t total_bytes = 0;
  for (const ExportShard& shard : shards) {
    total_bytes += data_bytes(shard);
    for (const SafetensorsEntry& entry : shard.header.entries) map[entry.name] = shard.name;
  }
  return nlohmann::ordered_json{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", map}}
             .dump(2) +
         "\n";
}

class Exporter {
 public:
  Exporter(FileSystem& file_system, const ExportOptions& options, CheckpointSource& source,
           const std::vector<ExportShard>& shards, const Progress& progress)
      : file_system_(file_system),
        options_(options),
        source_(source),
        shards_(shards),
        progress_(progress) {
    for (const ExportShard& shard : shards) total_bytes_ += data_bytes(shard);
  }

  Result<std::vector<Path>> run() {
    auto written = write_and_publish();
    if (!written.ok())
      for (const ExportShard& shard : shards_) (void)file_system_.remove(temporary(shard)).ok();
    return written;
  }

 private:
  Path temporary(const ExportShard& shard) const { return options_.folder / (shard.name + ".tmp"); }

  Result<std::vector<Path>> write_and_publish() {
    for (const ExportShard& shard : shards_) LOCKSTEP_RETURN_IF_ERROR(write_shard(shard));
    LOCKSTEP_RETURN_IF_ERROR(source_.check_sums());
    std::vector<Path> paths;
    for (const ExportShard& shard : shards_) {
      paths.push_back(options_.folder / shard.name);
      LOCKSTEP_RETURN_IF_ERROR(file_system_.rename(temporary(shard), paths.back()));
    }
    LOCKSTEP_RETURN_IF_ERROR(file_system_.sync_directory(options_.folder));
    if (shards_.size() == 1) return paths;
    paths.push_back(options_.folder / kIndexFile);
    LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system_, paths.back(), index_text(shards_)));
    return paths;
  }

  Result<void> write_shard(const ExportShard& shard) {
    LOCKSTEP_TRY(const auto file, file_system_.create(temporary(shard)));
    LOCKSTEP_RETURN_IF_ERROR(file->write_at(as_bytes(shard.preamble), 0));
    auto at = static_cast<int64_t>(shard.preamble.size());
    for (const auto& pieces : cut_windows(shard.pieces)) {
      window_.lay_out(pieces);
      LOCKSTEP_RETURN_IF_ERROR(source_.read(window_.targets()));
      for (const auto& [piece, fp32] : window_.pieces()) {
        narrowed_.resize(static_cast<size_t>(piece.length * dtype_bytes(options_.dtype)));
        narrow(options_.dtype, fp32, narrowed_);
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
  const std::vector<ExportShard>& shards_;
  const Progress& progress_;
  Window window_;
  std::vector<std::byte> narrowed_;
  int64_t done_bytes_ = 0, total_bytes_ = 0;
};

}  // namespace

Result<std::vector<ExportShard>> plan_export(const Manifest& manifest,
                                             const ExportOptions& options) {
  std::vector<ExportShard> shards(1);
  int64_t used = 0;  // by the last one
  for (const Kind kind : options.kinds) {
    const std::vector<TensorPiece> pieces = whole_pieces(manifest, kind);
    if (pieces.empty())
      return Error{Code::kConfig,
                   text("the checkpoint has no tensors of the kind ", kind_name(kind))};
    for (const TensorPiece& piece : pieces) {
      const int64_t size = piece.length * dtype_bytes(options.dtype);
      if (used > 0 && used + size > options.max_shard_bytes) {
        shards.emplace_back();
        used = 0;
      }
      used += size;
      shards.back().header.entries.push_back(
          {options.kinds.size() == 1 ? piece.name : piece.tensor_key(), dtype_name(options.dtype),
           piece.global_shape});
      shards.back().pieces.push_back(piece);
    }
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].header.metadata["format"] = "pt";  // readers of Hugging Face's insist on it
    shards[i].preamble = safetensors_preamble(shards[i].header);
    shards[i].name = shards.size() == 1 ? text("model", kSuffix) : numbered(i + 1, shards.size());
  }
  return shards;
}

Result<std::vector<Path>> export_safetensors(FileSystem& file_system, const ExportOptions& options,
                                             const Progress& progress) {
  LOCKSTEP_TRY(CheckpointSource source,
               CheckpointSource::open(file_system, options.source, options.threads));
  LOCKSTEP_TRY(const std::vector<ExportShard> shards, plan_export(source.manifest(), options));
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(options.folder));
  LOCKSTEP_RETURN_IF_ERROR(refuse_to_overwrite(file_system, options.folder));
  return Exporter(file_system, options, source, shards, progress).run();
}

}  // namespace lockstep::checkpoint
