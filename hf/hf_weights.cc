#include "hf/hf_weights.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/float16.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/text.h"

namespace lockstep::hf {
namespace {

using Path = std::filesystem::path;

constexpr size_t kNamesShown = 5;
constexpr int64_t kConvertElements = 1 << 16;  // read at once where the dtype is not fp32
constexpr int64_t kCompareElements = 1 << 20;  // of a tied model's head and embedding, at once
constexpr const char* kHeadName = "lm_head.weight";
constexpr int64_t kHashedElements = 1024;
constexpr size_t kHashedAtOnce = 256;  // tensors
constexpr int kHashReaders = 8;        // all ranks wait for one that hashes

// Whatever is wrong with a folder that the user named is the user's to mend.
Error as_config(Error error) {
  error.code = Code::kConfig;
  return error;
}

// Of a file that has no header of safetensors.
Error what_is_wrong(File& file, const Path& path, const Error& error) {
  std::string start(kLfsStartBytes, ' ');
  const auto read = file.read_at(std::as_writable_bytes(std::span(start)), 0);
  return read.ok() && is_lfs_pointer(start) ? lfs_pointer_error(path) : as_config(error);
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
  if (is_lfs_pointer(contents)) return lfs_pointer_error(index);
  const auto root = parse_json(contents, /*allow_exceptions=*/false);
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object())
    return Error{Code::kConfig, text(index.string(), " has no weight_map")};
  std::set<std::string> names;
  for (const auto& [tensor, file] : root["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos)
      return Error{Code::kConfig, text(index.string(), ": tensor ", tensor,
                                       " is in none of the *.safetensors files")};
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
  if (shape.tied && name == kHeadName) return true;
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

bool is_read(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

// The fields of config.json that say the shape of a parameter, by its role; "": of others.
const char* fields_of(const layout::ParamSpec& param, bool gpt2) {
  using layout::Role;
  switch (param.role) {
    case Role::kTokens:
    case Role::kHead: return gpt2 ? "vocab_size, n_embd" : "vocab_size, hidden_size";
    case Role::kPositions: return "n_positions, n_embd";
    case Role::kQ:
    case Role::kO: return gpt2 ? "n_embd" : "num_attention_heads, head_dim, hidden_size";
    case Role::kK:
    case Role::kV: return gpt2 ? "n_embd" : "num_key_value_heads, head_dim, hidden_size";
    case Role::kGate:
    case Role::kUp:
    case Role::kDown: return gpt2 ? "n_inner, n_embd" : "intermediate_size, hidden_size";
    default: return "";
  }
}

Result<void> check_entry(const SafetensorsEntry& entry, const layout::ParamSpec& param, bool gpt2) {
  const std::string fields = fields_of(param, gpt2);
  if (entry.shape != param.shape)
    return Error{Code::kConfig, text("tensor ", entry.name, " has shape ", list_text(entry.shape),
                                     ", but config.json asks for ", list_text(param.shape),
                                     fields.empty() ? "" : " by " + fields)};
  if (!is_read(entry.dtype))
    return Error{Code::kConfig, text("tensor ", entry.name, " has the unsupported dtype ",
                                     entry.dtype, "; use F32, BF16 or F16")};
  return {};
}

// As fp32. Requires: a range inside the tensor.
Result<void> read_values(File& file, const SafetensorsEntry& e, int64_t flat_start,
                         std::span<float> out) {
  const int64_t width = width_of(e), count = static_cast<int64_t>(out.size());
  const int64_t first = e.begin + flat_start * width;
  LOCKSTEP_CHECK(flat_start >= 0 && first + count * width <= e.end, e.name, " ", flat_start);
  if (e.dtype == "F32") return file.read_at(std::as_writable_bytes(out), first);
  const bool bf16 = e.dtype == "BF16";
  std::vector<uint16_t> words(static_cast<size_t>(std::min(count, kConvertElements)));
  for (int64_t at = 0; at < count; at += kConvertElements) {
    const auto part =
        std::span(words).first(static_cast<size_t>(std::min(kConvertElements, count - at)));
    LOCKSTEP_RETURN_IF_ERROR(file.read_at(std::as_writable_bytes(part), first + at * width));
    for (size_t i = 0; i < part.size(); ++i)
      out[static_cast<size_t>(at) + i] = bf16 ? bf16_to_float(part[i]) : half_to_float(part[i]);
  }
  return {};
}

Result<std::vector<float>> first_values(File& file, const SafetensorsEntry& e) {
  std::vector<float> values(
      static_cast<size_t>(std::min<int64_t>(kHashedElements, (e.end - e.begin) / width_of(e))));
  LOCKSTEP_RETURN_IF_ERROR(read_values(file, e, 0, values));
  return values;
}

uint64_t hash_of(const std::vector<float>& values) {
  return xxh3_64(std::as_bytes(std::span(values)));
}

Error another_file(const Path& path, const std::string& how) {
  return {Code::kConfig, text(path.string(), " differs from the file that rank 0 read: ", how,
                              "; it was replaced just now, or this node has another copy")};
}

}  // namespace

HfWeights::HfWeights(FileSystem& file_system, Path folder)
    : file_system_(file_system), folder_(std::move(folder)) {}

HfWeights::HfWeights(FileSystem& file_system, Path folder, WeightPlaces told)
    : file_system_(file_system),
      folder_(std::move(folder)),
      places_(std::move(told)),
      told_(true),
      files_(places_.files.size()) {}

Result<std::unique_ptr<HfWeights>> HfWeights::open(FileSystem& file_system, const Path& folder,
                                                   const layout::ModelSpec& spec) {
  std::unique_ptr<HfWeights> weights(new HfWeights(file_system, folder));
  WeightPlaces& places = weights->places_;
  std::map<std::string, WeightPlaces::Tensor> found;
  LOCKSTEP_TRY(const std::vector<Path> paths, weight_files(file_system, folder));
  for (const Path& path : paths) {
    auto file = file_system.open(path);
    if (!file.ok()) return as_config(file.error());
    auto header = read_safetensors_header(*file.value(), path.string());
    if (!header.ok()) return what_is_wrong(*file.value(), path, header.error());
    auto& entries = header.value().entries;
    places.files.push_back({path.filename().string(), entries.empty() ? 0 : entries.back().end});
    for (SafetensorsEntry& e : entries) {
      const std::string name = e.name;
      if (!found.insert({name, {weights->files_.size(), std::move(e)}}).second)
        return Error{Code::kConfig, text(path.string(), ": tensor ", name,
                                         " also appears in another file of the folder")};
    }
    weights->files_.push_back(std::move(file).value());
  }
  std::vector<std::string> missing, unexpected, wrong;
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
      auto fits = check_entry(place->second.entry, param, spec.shape.gpt2);
      if (!fits.ok()) wrong.push_back(fits.error().message);
      place->second.entry.name = param.name;
      places.tensors[param.name] = std::move(place->second);
      found.erase(place);
    }
  for (const auto& [name, place] : found)
    if (!ignored(name, spec.shape)) unexpected.push_back(name);
  if (!missing.empty() || !unexpected.empty() || !wrong.empty())
    return Error{Code::kConfig, text(folder.string(), ": the weights do not match its config.json",
                                     missing.empty() ? "" : "; missing: " + shown(missing),
                                     unexpected.empty() ? "" : "; unexpected: " + shown(unexpected),
                                     wrong.empty() ? "" : "; " + shown(wrong))};
  if (const auto head = found.find(kHeadName); spec.shape.tied && head != found.end())
    LOCKSTEP_RETURN_IF_ERROR(weights->compare_head(head->second, spec));
  return weights;
}

// The head of a tied model is the embedding. transformers 4 passes the file's head over, and 5
// takes it where it differs: what is meant is not known.
Result<void> HfWeights::compare_head(const WeightPlaces::Tensor& head,
                                     const layout::ModelSpec& spec) const {
  const layout::UnitSpec& unit = spec.units.front();
  const std::string& name = unit.params[static_cast<size_t>(unit.find(layout::Role::kTokens))].name;
  const WeightPlaces::Tensor& tokens = places_.tensors.at(name);
  const auto differs = [&](const std::string& how) {
    return Error{Code::kConfig,
                 text((folder_ / places_.files[head.file].name).string(), ": config.json has ",
                      "tie_word_embeddings true, and ", kHeadName, " is not ", name, ": ", how,
                      ". Versions of transformers disagree on which is taken. Write "
                      "\"tie_word_embeddings\": false into config.json to take ",
                      kHeadName, ", or take that tensor out of the file")};
  };
  if (head.entry.shape != tokens.entry.shape)
    return differs(text("its shape is ", list_text(head.entry.shape), ", and that one's ",
                        list_text(tokens.entry.shape)));
  int64_t elements = 1;
  for (const int64_t size : tokens.entry.shape) elements *= size;
  if (!is_read(head.entry.dtype)) return differs("its dtype is " + head.entry.dtype);
  std::vector<float> mine(static_cast<size_t>(std::min(elements, kCompareElements)));
  std::vector<float> other(mine.size());
  for (int64_t at = 0; at < elements; at += kCompareElements) {
    const auto count = static_cast<size_t>(std::min(kCompareElements, elements - at));
    const std::span<float> a = std::span(mine).first(count), b = std::span(other).first(count);
    LOCKSTEP_RETURN_IF_ERROR(read_values(*files_[head.file], head.entry, at, a));
    LOCKSTEP_RETURN_IF_ERROR(read_values(*files_[tokens.file], tokens.entry, at, b));
    const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin());
    if (x != a.end())
      return differs(text("element ", at + (x - a.begin()), " is ", *x, " and ", *y));
  }
  log_info(folder_.string(), ": ", kHeadName, " equals ", name, ", and the model is tied: ", name,
           " is taken");
  return {};
}

// Under the lock: who reads from a file or a tensor as the first waits for its disk for all.
Result<File*> HfWeights::opened(const std::string& name, const WeightPlaces::Tensor& tensor) const {
  const std::lock_guard lock(mutex_);
  const WeightPlaces::InFolder& seen = places_.files[tensor.file];
  const Path path = folder_ / seen.name;
  std::unique_ptr<File>& file = files_[tensor.file];
  if (!file) {
    auto opened = file_system_.open(path);
    if (!opened.ok()) return as_config(opened.error());
    LOCKSTEP_TRY(const int64_t bytes, opened.value()->size_bytes());
    if (bytes != seen.bytes)
      return another_file(path, text("it has ", bytes, " bytes, and rank 0 read ", seen.bytes));
    file = std::move(opened).value();
  }
  if (!told_ || compared_.contains(name)) return file.get();
  LOCKSTEP_TRY(const std::vector<float> values, first_values(*file, tensor.entry));
  if (hash_of(values) != tensor.beginning)
    return another_file(path, text("tensor ", name, " has other first values"));
  compared_.insert(name);
  return file.get();
}

Result<void> HfWeights::read(const std::string& name, int64_t flat_start,
                             std::span<float> out) const {
  const auto place = places_.tensors.find(name);
  LOCKSTEP_CHECK(place != places_.tensors.end(), name);
  LOCKSTEP_TRY(File* const file, opened(name, place->second));
  return read_values(*file, place->second.entry, flat_start, out);
}

Result<std::string> HfWeights::hash() {
  if (!places_.hash.empty()) return places_.hash;
  Xxh3Stream stream;
  for (auto next = places_.tensors.begin(); next != places_.tensors.end();) {
    std::vector<decltype(next)> some;
    while (next != places_.tensors.end() && some.size() < kHashedAtOnce) some.push_back(next++);
    std::vector<Result<std::vector<float>>> values(some.size(), std::vector<float>());
    parallel_for(some.size(), kHashReaders, [&] {
      return [&](size_t i) {
        const WeightPlaces::Tensor& tensor = some[i]->second;
        values[i] = first_values(*files_[tensor.file], tensor.entry);
      };
    });
    for (size_t i = 0; i < some.size(); ++i) {
      auto& [name, tensor] = *some[i];
      LOCKSTEP_TRY(const std::vector<float> first, values[i]);
      stream.update(as_bytes(text(name, tensor.entry.dtype, list_text(tensor.entry.shape))));
      stream.update(std::as_bytes(std::span(first)));
      tensor.beginning = hash_of(first);
    }
  }
  places_.hash = hex64(stream.digest());
  return places_.hash;
}

bool starts_from_folder(const Config& config) {
  return !config.model.hf_assets_path.empty() && config.model.init == InitialWeights::kHf;
}

Result<std::unique_ptr<HfWeights>> initial_weights(FileSystem& file_system, const Config& config,
                                                   const layout::ModelSpec& spec) {
  if (!starts_from_folder(config)) return std::unique_ptr<HfWeights>();
  return HfWeights::open(file_system, config.model.hf_assets_path, spec);
}

}  // namespace lockstep::hf
