#include "hf/hf_weights.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/float16.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"

namespace lockstep::hf {
namespace {

using Path = std::filesystem::path;

constexpr size_t kNamesShown = 5;
constexpr int64_t kConvertElements = 1 << 16;  // read at once where the dtype is not fp32
constexpr int64_t kHashedElements = 1024;

// Whatever is wrong with a folder that the user named is the user's to mend.
Error as_config(Error error) {
  error.code = Code::kConfig;
  return error;
}

Result<std::vector<Path>> weight_files(FileSystem& file_system, const Path& folder) {
  const Path single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (file_system.exists(single)) return std::vector<Path>{single};
  if (!file_system.exists(index))
    return Error{
        Code::kConfig,
        text(folder.string(), " has no model.safetensors and no ", index.filename().string(),
             "; --model.init random trains its architecture from random weights")};
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, index));
  const auto json = parse_json(contents, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    return Error{Code::kConfig, text(index.string(), " has no weight_map")};
  std::set<std::string> names;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos)
      return Error{Code::kConfig, text(index.string(), ": tensor ", tensor, " is in no file")};
    names.insert(name);
  }
  std::vector<Path> files;
  for (const std::string& name : names) files.push_back(folder / name);
  return files;
}

bool ends_with_any(const std::string& name, std::initializer_list<const char*> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](const char* e) { return name.ends_with(e); });
}

bool ignored(const std::string& name, const layout::DecoderShape& shape) {
  if (shape.tied && name == "lm_head.weight") return true;
  if (shape.gpt2) return ends_with_any(name, {".attn.bias", ".attn.masked_bias"});
  return ends_with_any(name, {".rotary_emb.inv_freq"});
}

std::string shown(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i)
    out += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamesShown) out += text(", and ", names.size() - kNamesShown, " more");
  return out;
}

std::string list_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += text(i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

int64_t width_of(const SafetensorsEntry& entry) { return entry.dtype == "F32" ? 4 : 2; }

Result<void> check_entry(const SafetensorsEntry& entry, const layout::ParamSpec& param) {
  if (entry.shape != param.shape)
    return Error{Code::kConfig, text("tensor ", entry.name, " has shape ", list_text(entry.shape),
                                     " and config.json makes it ", list_text(param.shape))};
  if (entry.dtype != "F32" && entry.dtype != "BF16" && entry.dtype != "F16")
    return Error{Code::kConfig, text("tensor ", entry.name, " is of dtype ", entry.dtype,
                                     "; F32, BF16 and F16 are read")};
  return {};
}

}  // namespace

Result<std::unique_ptr<HfWeights>> HfWeights::open(FileSystem& file_system, const Path& folder,
                                                   const layout::ModelSpec& spec) {
  std::unique_ptr<HfWeights> weights(new HfWeights);
  std::map<std::string, Place> found;
  LOCKSTEP_TRY(const std::vector<Path> paths, weight_files(file_system, folder));
  for (const Path& path : paths) {
    auto file = file_system.open(path);
    if (!file.ok()) return as_config(file.error());
    auto header = read_safetensors_header(*file.value(), path.string());
    if (!header.ok()) return as_config(header.error());
    for (SafetensorsEntry& e : header.value().entries) {
      const std::string name = e.name;
      if (!found.insert({name, {file.value().get(), std::move(e)}}).second)
        return Error{Code::kConfig, text(path.string(), ": tensor ", name,
                                         " is in another file of the folder as well")};
    }
    weights->files_.push_back(std::move(file).value());
  }
  std::vector<std::string> missing, unexpected;
  const std::string base = spec.shape.gpt2 ? "transformer." : "model.";
  for (const layout::UnitSpec& unit : spec.base())
    for (const layout::ParamSpec& param : unit.params) {
      auto place = found.find(param.name);
      if (place == found.end() && param.name.starts_with(base))
        place = found.find(param.name.substr(base.size()));
      if (place == found.end()) {
        missing.push_back(param.name);
        continue;
      }
      auto fits = check_entry(place->second.entry, param);
      if (!fits.ok()) return fits.error().in(folder.string());
      weights->places_[param.name] = std::move(place->second);
      found.erase(place);
    }
  for (const auto& [name, place] : found)
    if (!ignored(name, spec.shape)) unexpected.push_back(name);
  if (missing.empty() && unexpected.empty()) return weights;
  return Error{Code::kConfig,
               text(folder.string(), ": the weights are not those of its config.json",
                    missing.empty() ? "" : "; missing: " + shown(missing),
                    unexpected.empty() ? "" : "; unexpected: " + shown(unexpected))};
}

Result<void> HfWeights::read(const std::string& name, int64_t flat_start,
                             std::span<float> out) const {
  const Place& place = places_.at(name);
  const SafetensorsEntry& e = place.entry;
  const int64_t width = width_of(e), count = static_cast<int64_t>(out.size());
  const int64_t first = e.begin + flat_start * width;
  LOCKSTEP_CHECK(flat_start >= 0 && first + count * width <= e.end, name, " ", flat_start);
  if (e.dtype == "F32") return place.file->read_at(std::as_writable_bytes(out), first);
  const bool bf16 = e.dtype == "BF16";
  std::vector<uint16_t> words(static_cast<size_t>(std::min(count, kConvertElements)));
  for (int64_t at = 0; at < count; at += kConvertElements) {
    const auto part =
        std::span(words).first(static_cast<size_t>(std::min(kConvertElements, count - at)));
    LOCKSTEP_RETURN_IF_ERROR(place.file->read_at(std::as_writable_bytes(part), first + at * width));
    for (size_t i = 0; i < part.size(); ++i)
      out[static_cast<size_t>(at) + i] = bf16 ? bf16_to_float(part[i]) : half_to_float(part[i]);
  }
  return {};
}

Result<std::string> HfWeights::hash() const {
  Xxh3Stream stream;
  std::vector<float> values;
  for (const auto& [name, place] : places_) {
    const SafetensorsEntry& e = place.entry;
    stream.update(as_bytes(text(name, e.dtype, list_text(e.shape))));
    values.resize(
        static_cast<size_t>(std::min<int64_t>(kHashedElements, (e.end - e.begin) / width_of(e))));
    LOCKSTEP_RETURN_IF_ERROR(read(name, 0, values));
    stream.update(std::as_bytes(std::span(values)));
  }
  return hex64(stream.digest());
}

Result<std::unique_ptr<HfWeights>> initial_weights(FileSystem& file_system, const Config& config,
                                                   const layout::ModelSpec& spec) {
  if (config.model.hf_assets_path.empty() || config.model.init == InitialWeights::kRandom)
    return std::unique_ptr<HfWeights>();
  return HfWeights::open(file_system, config.model.hf_assets_path, spec);
}

}  // namespace lockstep::hf
