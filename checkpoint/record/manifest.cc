#include "checkpoint/record/manifest.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFormat = "lockstep-checkpoint";
constexpr const char* kSelfKey = "\"self_xxh3\"";
constexpr int64_t kMostElements = int64_t{1} << 50, kMostBytes = int64_t{1} << 55;

ordered_json json_of(const std::vector<TensorPiece>& pieces) {
  ordered_json json = ordered_json::array();
  for (const TensorPiece& p : pieces)
    json.push_back(ordered_json::array({p.tensor_key(), p.flat_start, p.length}));
  return json;
}

ordered_json json_of(const ManifestFile& file) {
  return {{"name", file.name},
          {"size_bytes", file.size_bytes},
          {"chunk_rows", file.chunk_rows},
          {"chunk_table_offset", file.chunk_table_offset},
          {"chunk_table_xxh3", file.chunk_table_xxh3},
          {"outside_xxh3", file.outside_xxh3},
          {"pieces", json_of(file.pieces)}};
}

ordered_json json_of(const ManifestPart& part) {
  return {{"name", part.name},
          {"size_bytes", part.size_bytes},
          {"xxh3", part.xxh3},
          {"file_count", part.file_count},
          {"stored_bytes", part.stored_bytes},
          {"pieces", json_of(part.pieces)}};
}

// `shapes` gives a piece its tensor's shape.
Result<TensorPiece> piece_of(const ordered_json& json, const Manifest& manifest) {
  const std::string key = json.at(0);
  const size_t slash = key.find('/');
  const auto kind = kind_from_name(std::string_view(key).substr(0, slash));
  if (slash == std::string::npos || !kind)
    return Error{Code::kCorrupt, text("piece of \"", key, "\": unknown kind")};
  TensorPiece piece{key.substr(slash + 1), *kind, {}, json.at(1), json.at(2), Dtype::kF32};
  const ManifestTensor* const tensor = manifest.find_tensor(piece.name);
  if (tensor == nullptr)
    return Error{Code::kCorrupt, text("piece of ", key, ": the manifest lists no such tensor")};
  piece.global_shape = tensor->global_shape;
  piece.dtype = tensor->dtype_of(*kind);
  return piece;
}

Result<std::vector<TensorPiece>> pieces_of(const ordered_json& json, const Manifest& manifest) {
  std::vector<TensorPiece> pieces;
  for (const ordered_json& piece : json) {
    LOCKSTEP_TRY(TensorPiece parsed, piece_of(piece, manifest));
    pieces.push_back(std::move(parsed));
  }
  return pieces;
}

Result<ManifestFile> file_of(const ordered_json& json, const Manifest& manifest) {
  ManifestFile file;
  file.name = json.at("name");
  file.size_bytes = json.at("size_bytes");
  file.chunk_rows = json.at("chunk_rows");
  file.chunk_table_offset = json.at("chunk_table_offset");
  file.chunk_table_xxh3 = json.at("chunk_table_xxh3");
  file.outside_xxh3 = json.at("outside_xxh3");
  LOCKSTEP_TRY(file.pieces, pieces_of(json.at("pieces"), manifest));
  return file;
}

Result<std::vector<ManifestFile>> files_of(const ordered_json& json, const Manifest& manifest) {
  std::vector<ManifestFile> files;
  for (const ordered_json& each : json.at("files")) {
    LOCKSTEP_TRY(ManifestFile file, file_of(each, manifest));
    files.push_back(std::move(file));
  }
  return files;
}

Result<std::vector<ManifestPart>> parts_of(const ordered_json& json, const Manifest& manifest) {
  std::vector<ManifestPart> parts;
  for (const ordered_json& each : json.at("parts")) {
    ManifestPart part;
    part.name = each.at("name");
    part.size_bytes = each.at("size_bytes");
    part.xxh3 = each.at("xxh3");
    part.file_count = each.at("file_count");
    part.stored_bytes = each.at("stored_bytes");
    LOCKSTEP_TRY(part.pieces, pieces_of(each.at("pieces"), manifest));
    parts.push_back(std::move(part));
  }
  return parts;
}

// {"adam_m": "bfloat16"}; absent: all is fp32.
Result<std::map<std::string, Dtype>> dtypes_of(const ordered_json& tensor) {
  std::map<std::string, Dtype> dtypes;
  if (!tensor.contains("dtype")) return dtypes;
  for (const auto& [kind, word] : tensor.at("dtype").items()) {
    if (word != dtype_word(Dtype::kBf16) || !tensor.at("fingerprint").contains(kind))
      return Error{Code::kCorrupt, text(kind, "/", tensor.at("name").get<std::string>(),
                                        ": unknown dtype ", word.dump())};
    dtypes[kind] = Dtype::kBf16;
  }
  return dtypes;
}

ordered_json json_of(const ManifestTensor& tensor) {
  ordered_json json{{"name", tensor.name},
                    {"global_shape", tensor.global_shape},
                    {"fingerprint", tensor.fingerprint}};
  for (const auto& [kind, dtype] : tensor.dtypes) json["dtype"][kind] = dtype_word(dtype);
  return json;
}

// A member of the text: a line for each item, so that it is large, yet readable and quick to grep.
template <typename Items>
std::string lines_text(const char* key, const Items& items) {
  std::string out = text("\"", key, "\": [\n");
  for (size_t i = 0; i < items.size(); ++i)
    out += json_of(items[i]).dump() + (i + 1 < items.size() ? ",\n" : "\n");
  return out + "]";
}

// Throws nlohmann's exceptions on missing or mistyped fields.
Result<Manifest> manifest_of(const ordered_json& json) {
  if (json.at("format") != kFormat) return Error{Code::kCorrupt, "not a checkpoint manifest"};
  Manifest m;
  m.format_version = json.at("format_version");
  if (m.format_version < kFormatVersion || m.format_version > kPartsFormatVersion)
    return Error{Code::kConfig,
                 text("its format version is ", m.format_version, "; this program reads ",
                      kFormatVersion, " to ", kPartsFormatVersion)};
  m.step = json.at("step");
  m.generation = json.at("generation");
  m.world_size = json.at("world_size");
  m.nonce = json.at("nonce");
  m.created_utc = json.at("created_utc");
  m.ephemeral = json.value("ephemeral", false);
  if (json.contains("validation_loss")) m.validation_loss = json.at("validation_loss");
  m.index_xxh3 = json.value("index_xxh3", "");
  m.codec = json.at("codec");
  m.chunking = {json.at("chunk_elements"), json.value("equal_chunks", false)};
  m.trainer_state = json.at("trainer_state").dump();
  for (const ordered_json& tensor : json.at("tensors")) {
    LOCKSTEP_TRY(auto dtypes, dtypes_of(tensor));
    m.tensors.push_back({tensor.at("name"), tensor.at("global_shape"), tensor.at("fingerprint"),
                         std::move(dtypes)});
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  if (!std::is_sorted(m.tensors.begin(), m.tensors.end(), by_name))
    return Error{Code::kCorrupt, "tensors are not sorted by name"};
  if (m.format_version == kPartsFormatVersion) {
    LOCKSTEP_TRY(m.parts, parts_of(json, m));
  } else {
    LOCKSTEP_TRY(m.files, files_of(json, m));
  }
  return m;
}

// Whether each of a tensor's extents, and their product, can be one.
bool is_shape(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && count > kMostElements / extent)) return false;
    count *= extent;
  }
  return true;
}

bool is_name_beside(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos;
}

template <typename... Parts>
Error corrupt(const Parts&... what) {
  return Error{Code::kCorrupt, text(what...)};
}

// What readers compute with: sizes that no sum or product of theirs leaves the range with, and
// names of files beside the manifest.
Result<void> check_pieces(const std::string& where, const std::vector<TensorPiece>& pieces) {
  for (const TensorPiece& p : pieces)
    if (p.flat_start < 0 || p.length < 0 || p.flat_start > element_count(p.global_shape) - p.length)
      return corrupt(where, ": ", p.dataset_path(), " of ", p.length,
                     " elements does not fit the shape ", shape_text(p.global_shape));
  return {};
}

Result<void> check_file(const ManifestFile& f) {
  if (!is_name_beside(f.name))
    return corrupt("\"", f.name, "\" is not a plain file name in the same folder");
  if (f.size_bytes < 0 || f.size_bytes > kMostBytes || f.chunk_rows < 0 ||
      f.chunk_rows > f.size_bytes || f.chunk_table_offset < 0 ||
      f.chunk_table_offset > f.size_bytes)
    return corrupt(f.name, ": impossible sizes: ", f.size_bytes, " bytes, ", f.chunk_rows,
                   " chunks, their table at ", f.chunk_table_offset);
  return check_pieces(f.name, f.pieces);
}

Result<void> check_part(const ManifestPart& p) {
  if (!is_name_beside(p.name))
    return corrupt("\"", p.name, "\" is not a plain file name in the same folder");
  if (p.size_bytes < 0 || p.size_bytes > kMostBytes || p.file_count < 0 ||
      p.file_count > p.size_bytes || p.stored_bytes < 0 || p.stored_bytes > kMostBytes)
    return corrupt(p.name, ": impossible sizes: ", p.size_bytes, " bytes, of ", p.file_count,
                   " files of ", p.stored_bytes, " bytes");
  return check_pieces(p.name, p.pieces);
}

Result<void> check_numbers(const Manifest& m) {
  if (m.step < 0 || m.generation < 0 || m.world_size < 1)
    return corrupt("impossible numbers: step ", m.step, ", generation ", m.generation,
                   ", world size ", m.world_size);
  if (m.chunking.elements < 0 || m.chunking.elements > kMostElements)  // 0: of memory, no chunks
    return corrupt("impossible chunk size: ", m.chunking.elements, " elements");
  for (const ManifestTensor& t : m.tensors)
    if (!is_shape(t.global_shape))
      return corrupt(t.name, ": impossible shape ", shape_text(t.global_shape));
  for (const ManifestFile& f : m.files) LOCKSTEP_RETURN_IF_ERROR(check_file(f));
  for (const ManifestPart& p : m.parts) LOCKSTEP_RETURN_IF_ERROR(check_part(p));
  return {};
}

std::string self_line(std::string_view before) {
  return text(kSelfKey, ": \"", hex64(xxh3_64(before)), "\"\n}\n");
}

}  // namespace

Dtype ManifestTensor::dtype_of(Kind kind) const {
  const auto at = dtypes.find(kind_name(kind));
  return at == dtypes.end() ? Dtype::kF32 : at->second;
}

void Manifest::set_tensors(std::vector<ManifestTensor> all) {
  tensors = std::move(all);
  LOCKSTEP_CHECK(std::is_sorted(tensors.begin(), tensors.end(),
                                [](const auto& a, const auto& b) { return a.name < b.name; }),
                 tensors.size(), " tensors are not sorted by name");
  const bool narrow = std::any_of(tensors.begin(), tensors.end(),
                                  [](const ManifestTensor& t) { return !t.dtypes.empty(); });
  format_version = !parts.empty() ? kPartsFormatVersion
                   : narrow       ? kNarrowFormatVersion
                                  : kFormatVersion;
}

void Manifest::set_parts(std::vector<ManifestPart> all) {
  LOCKSTEP_CHECK(!all.empty(), "a manifest in no parts");
  files.clear();
  parts = std::move(all);
  set_tensors(std::move(tensors));
  LOCKSTEP_CHECK(format_version == kPartsFormatVersion, "format ", format_version);
}

std::vector<ManifestTensor> tensors_of(std::span<const LivePiece> pieces,
                                       const Fingerprints& sums) {
  std::map<std::string, ManifestTensor> by_name;
  for (const auto& [piece, bytes] : pieces) {
    ManifestTensor& tensor = by_name[piece.name];
    LOCKSTEP_CHECK(sums.contains(piece.tensor_key()), piece.tensor_key(), " has no fingerprint");
    tensor.name = piece.name;
    tensor.global_shape = piece.global_shape;
    tensor.fingerprint[kind_name(piece.kind)] = hex64(sums.at(piece.tensor_key()));
    if (piece.dtype != Dtype::kF32) tensor.dtypes[kind_name(piece.kind)] = piece.dtype;
  }
  std::vector<ManifestTensor> tensors;
  for (auto& [name, tensor] : by_name) tensors.push_back(std::move(tensor));
  return tensors;
}

const ManifestTensor* Manifest::find_tensor(const std::string& name) const {
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const auto& t, const auto& n) { return t.name < n; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

std::string manifest_text(const Manifest& m) {
  LOCKSTEP_CHECK(m.parts.empty() == (m.format_version != kPartsFormatVersion), "format ",
                 m.format_version, " with ", m.parts.size(), " parts");
  const auto field = [](const char* key, const ordered_json& value) {
    return text("\"", key, "\": ", value.dump(), ",\n");
  };
  std::string out = "{\n" + field("format", kFormat) + field("format_version", m.format_version) +
                    field("step", m.step) + field("generation", m.generation) +
                    field("nonce", m.nonce) + field("world_size", m.world_size) +
                    field("created_utc", m.created_utc) +
                    (m.ephemeral ? field("ephemeral", true) : "") +
                    (m.validation_loss ? field("validation_loss", *m.validation_loss) : "") +
                    (m.index_xxh3.empty() ? "" : field("index_xxh3", m.index_xxh3)) +
                    field("codec", m.codec) + field("chunk_elements", m.chunking.elements) +
                    (m.chunking.equal ? field("equal_chunks", true) : "") +
                    text("\"trainer_state\": ", m.trainer_state, ",\n");
  out += lines_text("tensors", m.tensors) + ",\n";
  out += (m.parts.empty() ? lines_text("files", m.files) : lines_text("parts", m.parts)) + ",\n";
  return out + self_line(out);
}

Result<Manifest> parse_manifest(const std::string& contents, Coverage coverage) {
  const size_t self = contents.rfind(kSelfKey);
  if (self == std::string::npos)
    return Error{Code::kCorrupt, "truncated or damaged: its last field, the checksum, is missing"};
  const std::string_view before(contents.data(), self);
  if (contents.substr(self) != self_line(before))
    return Error{Code::kCorrupt, "its bytes do not match its own checksum"};
  try {
    LOCKSTEP_TRY(Manifest manifest, manifest_of(parse_json<ordered_json>(contents)));
    LOCKSTEP_RETURN_IF_ERROR(check_numbers(manifest));
    if (coverage == Coverage::kWhole) LOCKSTEP_RETURN_IF_ERROR(check_coverage(manifest));
    return manifest;
  } catch (const nlohmann::json::exception& e) {
    return Error{Code::kCorrupt, e.what()};
  }
}

std::string part_text(std::span<const ManifestFile> files) {
  return "{\n" + lines_text("files", files) + "\n}\n";
}

Result<std::vector<ManifestFile>> parse_part(const std::string& contents, const Manifest& whole) {
  try {
    LOCKSTEP_TRY(auto files, files_of(parse_json<ordered_json>(contents), whole));
    for (const ManifestFile& file : files) {
      LOCKSTEP_RETURN_IF_ERROR(check_file(file));
      for (const TensorPiece& piece : file.pieces)
        if (piece.length == 0) return corrupt(file.name, ": it has a piece without elements");
    }
    return files;
  } catch (const nlohmann::json::exception& e) {
    return Error{Code::kCorrupt, e.what()};
  }
}

Result<void> check_coverage(const Manifest& manifest) {
  std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> intervals;
  const auto add = [&](const auto& holders) {
    for (const auto& holder : holders)
      for (const TensorPiece& p : holder.pieces)
        intervals[p.tensor_key()].emplace_back(p.flat_start, p.length);
  };
  if (manifest.parts.empty())
    add(manifest.files);
  else
    add(manifest.parts);
  for (const ManifestTensor& tensor : manifest.tensors)
    for (const auto& [kind, ignored] : tensor.fingerprint) {
      const std::string key = kind + "/" + tensor.name;
      auto& parts = intervals[key];
      std::sort(parts.begin(), parts.end());
      int64_t end = 0;
      for (const auto& [start, length] : parts) {
        if (start != end || length <= 0)
          return Error{Code::kCorrupt, text(key, ": element ", std::min(start, end), " is in ",
                                            start < end ? "two pieces" : "no piece")};
        end = start + length;
      }
      if (end != element_count(tensor.global_shape))
        return Error{Code::kCorrupt, text(key, ": the pieces hold ", end, " elements of shape ",
                                          shape_text(tensor.global_shape))};
      intervals.erase(key);
    }
  if (!intervals.empty())
    return Error{Code::kCorrupt,
                 text(intervals.begin()->first, ": it has pieces of an unknown tensor")};
  return {};
}

Result<void> check_fingerprints(const Manifest& manifest, const Fingerprints& whole) {
  std::string wrong;
  for (const ManifestTensor& tensor : manifest.tensors)
    for (const auto& [kind, expected] : tensor.fingerprint) {
      const auto at = whole.find(kind + "/" + tensor.name);
      if (at == whole.end() || hex64(at->second) == expected) continue;
      wrong += text(wrong.empty() ? "" : ", ", at->first, " (", hex64(at->second), ", saved ",
                    expected, ")");
    }
  if (wrong.empty()) return {};
  return Error{Code::kCorrupt,
               "fingerprints differ from those of the state that was saved: " + wrong};
}

}  // namespace lockstep::checkpoint
