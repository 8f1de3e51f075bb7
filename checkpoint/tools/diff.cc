#include "checkpoint/tools/diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "base/json.h"
#include "base/text.h"
#include "checkpoint/tools/dtype.h"

namespace lockstep::checkpoint {
namespace {

using Fields = std::map<std::string, std::string>;
struct KeyedTensor {
  Kind kind;
  const ManifestTensor* tensor;
  std::string fingerprint;
};
using Tensors = std::map<std::string, KeyedTensor>;  // by kind/name

// Lists of lines "name=value", as the identity is, field by field.
Fields state_fields(const Manifest& manifest) {
  using nlohmann::json;
  Fields fields{{"step", std::to_string(manifest.step)}};
  const json state = parse_json(manifest.trainer_state, /*allow_exceptions=*/false);
  if (!state.is_object()) return fields;
  const auto word = [](const json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  for (const auto& [name, value] : state.items()) {
    if (!value.is_array()) {
      fields["trainer_state." + name] = word(value);
      continue;
    }
    for (const json& item : value) {
      const std::string line = word(item);
      const size_t equals = line.find('=');
      fields[text(name, ".", line.substr(0, equals))] =
          equals == std::string::npos ? "present" : line.substr(equals + 1);
    }
  }
  return fields;
}

Fields layout_fields(const Manifest& manifest) {
  return {{"generation", std::to_string(manifest.generation)},
          {"world_size", std::to_string(manifest.world_size)},
          {"files", std::to_string(manifest.files.size())},
          {"codec", manifest.codec}};
}

std::vector<FieldDifference> compare_fields(const Fields& a, const Fields& b) {
  Fields names = a;
  names.insert(b.begin(), b.end());
  const auto value = [](const Fields& fields, const std::string& name) {
    const auto at = fields.find(name);
    return at == fields.end() ? std::string("(absent)") : at->second;
  };
  std::vector<FieldDifference> differing;
  for (const auto& [name, ignored] : names)
    if (value(a, name) != value(b, name))
      differing.push_back({name, value(a, name), value(b, name)});
  return differing;
}

Tensors tensors_of(const Manifest& manifest) {
  Tensors tensors;
  for (const ManifestTensor& tensor : manifest.tensors)
    for (const auto& [kind, fingerprint] : tensor.fingerprint)
      tensors[kind + "/" + tensor.name] = {*kind_from_name(kind), &tensor, fingerprint};
  return tensors;
}

// Sorts all tensors into `diff`; those to be read are returned.
std::vector<TensorPiece> compare_names(const Tensors& a, const Tensors& b, CheckpointDiff& diff) {
  std::vector<TensorPiece> to_read;
  for (const auto& [key, of_a] : a) {
    const auto at = b.find(key);
    if (at == b.end()) {
      diff.only_a.push_back(key);
      continue;
    }
    const auto &shape_a = of_a.tensor->global_shape, &shape_b = at->second.tensor->global_shape;
    const Dtype dtype_a = of_a.tensor->dtype_of(of_a.kind);
    const Dtype dtype_b = at->second.tensor->dtype_of(of_a.kind);
    if (shape_a != shape_b)
      diff.shapes.push_back({key, shape_a, shape_b});
    else if (dtype_a != dtype_b)
      diff.dtypes.push_back({key, dtype_a, dtype_b});
    else if (of_a.fingerprint == at->second.fingerprint)
      ++diff.equal_tensors;
    else
      to_read.push_back(
          {of_a.tensor->name, of_a.kind, shape_a, 0, element_count(shape_a), dtype_a});
  }
  for (const auto& [key, ignored] : b)
    if (!a.contains(key)) diff.only_b.push_back(key);
  return to_read;
}

void compare_bytes(Dtype dtype, std::span<const std::byte> a, std::span<const std::byte> b,
                   TensorDifference& difference) {
  const auto size = static_cast<size_t>(dtype_bytes(dtype));
  for (size_t at = 0; at < a.size(); at += size) {
    if (std::memcmp(a.data() + at, b.data() + at, size) == 0) continue;
    float x, y;
    widen(dtype, a.subspan(at, size), std::as_writable_bytes(std::span(&x, 1)));
    widen(dtype, b.subspan(at, size), std::as_writable_bytes(std::span(&y, 1)));
    ++difference.differing;
    const double distance = std::abs(static_cast<double>(x) - static_cast<double>(y));
    difference.max_abs = std::isfinite(distance) ? std::max(difference.max_abs, distance)
                                                 : std::numeric_limits<double>::infinity();
  }
}

}  // namespace

Result<CheckpointDiff> diff_checkpoints(FileSystem& file_system, const std::filesystem::path& a,
                                        const std::filesystem::path& b, int threads,
                                        const Progress& progress) {
  LOCKSTEP_TRY(CheckpointSource source_a, CheckpointSource::open(file_system, a, threads));
  LOCKSTEP_TRY(CheckpointSource source_b, CheckpointSource::open(file_system, b, threads));
  const Manifest &manifest_a = source_a.manifest(), &manifest_b = source_b.manifest();
  CheckpointDiff diff;
  diff.state = compare_fields(state_fields(manifest_a), state_fields(manifest_b));
  diff.layout = compare_fields(layout_fields(manifest_a), layout_fields(manifest_b));
  const auto to_read = compare_names(tensors_of(manifest_a), tensors_of(manifest_b), diff);
  std::map<std::string, TensorDifference> differences;
  int64_t done_bytes = 0, total_bytes = 0;
  for (const TensorPiece& piece : to_read) {
    differences[piece.tensor_key()] = {piece.tensor_key(), piece.global_shape, piece.length, 0, 0};
    total_bytes += piece.size_bytes();
  }
  Window window_a, window_b;
  for (const auto& pieces : cut_windows(to_read)) {
    window_a.lay_out(pieces);
    window_b.lay_out(pieces);
    LOCKSTEP_RETURN_IF_ERROR(source_a.read(window_a.targets()));
    LOCKSTEP_RETURN_IF_ERROR(source_b.read(window_b.targets()));
    const auto live_a = window_a.pieces(), live_b = window_b.pieces();
    for (size_t i = 0; i < pieces.size(); ++i) {
      compare_bytes(pieces[i].dtype, live_a[i].bytes, live_b[i].bytes,
                    differences[pieces[i].tensor_key()]);
      done_bytes += pieces[i].size_bytes();
    }
    progress(done_bytes, total_bytes);
  }
  LOCKSTEP_RETURN_IF_ERROR(source_a.check_sums());
  LOCKSTEP_RETURN_IF_ERROR(source_b.check_sums());
  for (auto& [key, difference] : differences) diff.tensors.push_back(std::move(difference));
  std::stable_sort(diff.tensors.begin(), diff.tensors.end(), [](const auto& x, const auto& y) {
    return std::tie(x.max_abs, x.differing) > std::tie(y.max_abs, y.differing);
  });
  return diff;
}

}  // namespace lockstep::checkpoint
