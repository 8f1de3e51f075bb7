#include "checkpoint/tools/import.h"

#include <algorithm>

#include "base/json.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "checkpoint/tools/dtype.h"

namespace lockstep::checkpoint {
namespace {

using Path = std::filesystem::path;
using WeightMap = std::map<std::string, std::string>;  // tensor -> file name

constexpr const char* kSuffix = ".safetensors";
constexpr const char* kIndexSuffix = ".safetensors.index.json";

Result<WeightMap> read_weight_map(FileSystem& file_system, const Path& path) {
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, path));
  try {
    const auto map = parse_json(contents).at("weight_map").get<WeightMap>();
    for (const auto& [tensor, file] : map)
      if (file != Path(file).filename().string())
        return Error{Code::kCorrupt, text(path.string(), ": tensor ", tensor, " is in \"", file,
                                          "\", which is not a plain file name in the same folder")};
    return map;
  } catch (const nlohmann::json::exception& e) {
    return Error{Code::kCorrupt, text(path.string(), ": ", e.what())};
  }
}

// A tensor and the file that holds it.
struct ImportTensor {
  Kind kind = Kind::kParam;  // from a name adam_m/NAME (as several kinds are exported), else param
  std::string name;
  size_t file = 0;
  int64_t file_offset = 0;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
};

// kind/name of what several kinds were exported as; else a weight.
ImportTensor named(const SafetensorsEntry& entry) {
  ImportTensor out;
  out.name = entry.name;
  out.file_offset = entry.begin;
  out.shape = entry.shape;
  const size_t slash = entry.name.find('/');
  if (slash == std::string::npos) return out;
  if (const auto kind = kind_from_name(std::string_view(entry.name).substr(0, slash))) {
    out.kind = *kind;
    out.name = entry.name.substr(slash + 1);
  }
  return out;
}

// The tensors of all files, by kind/name.
class Import {
 public:
  explicit Import(FileSystem& file_system) : file_system_(file_system) {}

  Result<void> open(const Path& source) {
    std::vector<Path> paths;
    std::string index;
    if (const auto names = file_system_.list(source); names.ok()) {
      for (const std::string& name : names.value()) {
        if (name.ends_with(kSuffix)) paths.push_back(source / name);
        if (name.ends_with(kIndexSuffix)) index = name;
      }
      if (paths.empty())
        return Error{Code::kConfig, text(source.string(), ": no *", kSuffix, " in this folder")};
    } else {
      paths.push_back(source);
    }
    WeightMap weight_map;
    if (!index.empty()) {
      LOCKSTEP_TRY(weight_map, read_weight_map(file_system_, source / index));
      std::erase_if(paths, [&](const Path& path) {
        return std::none_of(weight_map.begin(), weight_map.end(), [&](const auto& entry) {
          return entry.second == path.filename().string();
        });
      });
    }
    for (const Path& path : paths) LOCKSTEP_RETURN_IF_ERROR(add_file(path));
    return index.empty() ? Result<void>() : check_index(source / index, weight_map);
  }

  // With an entry for each kind of each tensor, whose fingerprint is not known.
  Result<std::vector<ManifestTensor>> manifest_tensors(bool zero_optimizer) const {
    std::map<std::string, ManifestTensor> by_name;
    for (const auto& [key, tensor] : tensors_) {
      ManifestTensor& out = by_name[tensor.name];
      if (!out.fingerprint.empty() && out.global_shape != tensor.shape)
        return Error{Code::kCorrupt,
                     text(key, " has shape ", shape_text(tensor.shape),
                          ", but another kind of this tensor has ", shape_text(out.global_shape))};
      out.name = tensor.name;
      out.global_shape = tensor.shape;
      out.fingerprint[kind_name(tensor.kind)] = "";
      if (zero_optimizer)
        for (const Kind kind : {Kind::kAdamM, Kind::kAdamV}) out.fingerprint[kind_name(kind)] = "";
    }
    std::vector<ManifestTensor> tensors;
    for (auto& [name, tensor] : by_name) tensors.push_back(std::move(tensor));
    return tensors;
  }

  Result<void> fill(const std::vector<LiveTarget>& targets) {
    for (const auto& [piece, bytes] : targets) {
      const auto at = tensors_.find(piece.tensor_key());
      if (at == tensors_.end()) {
        std::fill(bytes.begin(), bytes.end(), std::byte{0});
        continue;
      }
      const ImportTensor& tensor = at->second;
      const int64_t element_bytes = dtype_bytes(tensor.dtype);
      stored_.resize(static_cast<size_t>(piece.length * element_bytes));
      LOCKSTEP_RETURN_IF_ERROR(files_[tensor.file]->read_at(
          stored_, tensor.file_offset + piece.flat_start * element_bytes));
      widen(tensor.dtype, stored_, bytes);
    }
    return {};
  }

 private:
  Result<void> add_file(const Path& path) {
    LOCKSTEP_TRY(auto file, file_system_.open(path));
    LOCKSTEP_TRY(const auto header, read_safetensors_header(*file, path.string()));
    if (header.entries.empty())
      return Error{Code::kCorrupt, text(path.string(), ": it holds no tensors")};
    for (const SafetensorsEntry& each : header.entries) {
      ImportTensor tensor = named(each);
      tensor.file = files_.size();
      const std::string key = text(kind_name(tensor.kind), "/", tensor.name);
      const auto dtype = dtype_from_name(each.dtype);
      if (!dtype)
        return Error{Code::kConfig,
                     text(path.string(), ": tensor ", each.name, " has the unsupported dtype ",
                          each.dtype, "; use F32, BF16 or F16")};
      tensor.dtype = *dtype;
      if (tensor.name.empty() || each.begin == each.end)
        return Error{Code::kCorrupt, text(path.string(), ": tensor \"", each.name,
                                          "\" has no name or no elements")};
      if (!tensors_.try_emplace(key, std::move(tensor)).second)
        return Error{Code::kCorrupt, text(path.string(), ": tensor ", each.name,
                                          " appears twice, in this file or in another")};
      file_of_[each.name] = path.filename().string();
    }
    files_.push_back(std::move(file));
    return {};
  }

  Result<void> check_index(const Path& path, const WeightMap& weight_map) const {
    for (const auto& [tensor, file] : weight_map) {
      const auto at = file_of_.find(tensor);
      if (at == file_of_.end() || at->second != file)
        return Error{Code::kCorrupt,
                     text(path.string(), ": tensor ", tensor, " should be in ", file,
                          ", but it is in ", at == file_of_.end() ? "no file" : at->second)};
    }
    for (const auto& [tensor, file] : file_of_)
      if (!weight_map.contains(tensor))
        return Error{Code::kCorrupt,
                     text(path.string(), " does not name tensor ", tensor, " of ", file)};
    return {};
  }

  FileSystem& file_system_;
  std::vector<std::unique_ptr<File>> files_;
  std::map<std::string, ImportTensor> tensors_;  // by kind/name
  WeightMap file_of_;
  std::vector<std::byte> stored_;
};

}  // namespace

Result<Path> import_safetensors(FileSystem& file_system, const ImportOptions& options,
                                const Progress& progress) {
  Import imported(file_system);
  LOCKSTEP_RETURN_IF_ERROR(imported.open(options.source));
  WholeCheckpoint whole;
  LOCKSTEP_TRY(whole.tensors, imported.manifest_tensors(options.zero_optimizer));
  whole.folder = options.folder;
  whole.attempt = {0, 0, options.nonce};
  whole.world_size = options.world_size;
  whole.codec = options.codec;
  whole.threads = options.threads;
  whole.trainer_state =
      dump_json(nlohmann::json{{"step", 0}, {"imported_from", options.source.string()}});
  return write_whole(
      file_system, whole,
      [&](const std::vector<LiveTarget>& targets) { return imported.fill(targets); }, progress);
}

}  // namespace lockstep::checkpoint
