#include "hf/hf_export.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/float16.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/record/catalog.h"
#include "hf/hf_config.h"
#include "hf/hf_weights.h"
#include "hf/lora_export.h"

namespace lockstep::hf {
namespace {

using nlohmann::ordered_json;
using Path = std::filesystem::path;

constexpr int64_t kWindowElements = int64_t{1} << 25;

// What goes with the weights, where the folder has it; and of a tokenizer.
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kChatTemplate = "chat_template.jinja";
constexpr const char* kTokenizer[] = {
    "added_tokens.json", kChatTemplate,     "chat_template.json",      "encoder.json",
    "merges.txt",        "spiece.model",    "special_tokens_map.json", "tekken.json",
    "tokenizer.json",    "tokenizer.model", "tokenizer_config.json",   "vocab.bpe",
    "vocab.json"};

std::vector<const layout::ParamSpec*> params_of(std::span<const layout::UnitSpec> units) {
  std::vector<const layout::ParamSpec*> params;
  for (const auto& unit : units)
    for (const auto& param : unit.params) params.push_back(&param);
  return params;
}

std::vector<const layout::ParamSpec*> written_params(const HfExport& job) {
  return params_of(job.adapters_alone ? job.spec.adapters() : job.spec.base());
}

// Tensors in model order; adapters in one file.
std::vector<SafetensorsFile> plan_files(const HfExport& job) {
  const char* const dtype = job.dtype == FloatType::kBfloat16 ? "BF16" : "F32";
  std::vector<SafetensorsEntry> tensors;
  for (const layout::ParamSpec* param : written_params(job))
    tensors.push_back({(job.adapters_alone ? kPeftPrefix : "") + param->name, dtype, param->shape});
  if (!job.adapters_alone) return cut_into_files(tensors, job.max_file_bytes);
  auto files = cut_into_files(tensors, std::numeric_limits<int64_t>::max());
  files[0].name = "adapter_model.safetensors";
  return files;
}

// The checkpoint has what the spec trains and no others; load_pieces compares shapes.
Result<void> check_names(const checkpoint::Manifest& manifest, const layout::ModelSpec& spec) {
  std::set<std::string> wanted;
  for (const auto* param : params_of(spec.adapted() ? spec.adapters() : spec.base()))
    wanted.insert(param->name);
  for (const auto& tensor : manifest.tensors)
    if (!wanted.contains(tensor.name))
      return Error{Code::kConfig, text("the checkpoint has ", tensor.name,
                                       ", which the model of config.json does not have")};
  return {};
}

TensorReader checkpoint_reader(FileSystem& file_system, const HfExport& job,
                               const checkpoint::Manifest& manifest) {
  return [&](const std::string& name, const std::vector<int64_t>& shape, int64_t first,
             std::span<float> out) -> Result<void> {
    checkpoint::LiveTarget target{
        {name, checkpoint::Kind::kParam, shape, first, static_cast<int64_t>(out.size())},
        std::as_writable_bytes(out)};
    const auto loaded =
        checkpoint::load_pieces(file_system, job.checkpoint, manifest, {target}, job.threads);
    return loaded.ok() ? Result<void>() : loaded.error();
  };
}

// Where the values of the tensors that are written come from. `base`: for adapters to be added to.
Result<TensorReader> reader_for(FileSystem& file_system, const HfExport& job,
                                const checkpoint::Manifest& manifest,
                                std::unique_ptr<HfWeights>& base) {
  TensorReader from_checkpoint = checkpoint_reader(file_system, job, manifest);
  if (!job.spec.adapted()) return from_checkpoint;
  if (job.adapters_alone)
    return TensorReader([from_checkpoint](const std::string& name, const auto& shape, int64_t first,
                                          std::span<float> out) {
      return from_checkpoint(name.substr(std::string_view(kPeftPrefix).size()), shape, first, out);
    });
  if (job.assets.empty() || job.random_base)
    return Error{Code::kConfig,
                 "the adapters were trained on random base weights, which no folder holds; use "
                 "--lora to write the adapters alone"};
  LOCKSTEP_TRY(base, HfWeights::open(file_system, job.assets, job.spec));
  const auto from_folder = [&base](const std::string& name, const std::vector<int64_t>&,
                                   int64_t first,
                                   std::span<float> out) { return base->read(name, first, out); };
  return merged(from_folder, from_checkpoint, job.spec, job.lora);
}

Result<void> write_tensor(const TensorReader& read, const SafetensorsEntry& entry, File& file) {
  const int64_t elements = checkpoint::element_count(entry.shape);
  const bool narrow = entry.dtype == "BF16";
  std::vector<float> values;
  std::vector<uint16_t> words;
  for (int64_t at = 0; at < elements; at += kWindowElements) {
    const int64_t length = std::min(kWindowElements, elements - at);
    values.resize(static_cast<size_t>(length));
    LOCKSTEP_RETURN_IF_ERROR(read(entry.name, entry.shape, at, values));
    std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    if (narrow) {
      words.resize(values.size());
      std::transform(values.begin(), values.end(), words.begin(), float_to_bf16);
      bytes = std::as_bytes(std::span(words));
    }
    LOCKSTEP_RETURN_IF_ERROR(file.write_at(bytes, entry.begin + at * (narrow ? 2 : 4)));
  }
  return {};
}

// tmp, write, sync, rename; the folder is synced with config.json.
Result<void> write_weights(FileSystem& file_system, const HfExport& job, const TensorReader& read,
                           const SafetensorsFile& weights) {
  const Path path = job.folder / weights.name;
  const Path unfinished = path.string() + ".tmp";
  {
    LOCKSTEP_TRY(const auto file, file_system.create(unfinished));
    LOCKSTEP_RETURN_IF_ERROR(file->write_at(as_bytes(weights.preamble), 0));
    for (const SafetensorsEntry& entry : weights.header.entries)
      LOCKSTEP_RETURN_IF_ERROR(write_tensor(read, entry, *file));
    LOCKSTEP_RETURN_IF_ERROR(file->sync());
  }
  return file_system.rename(unfinished, path);
}

Result<ordered_json> json_object(FileSystem& file_system, const Path& file) {
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, file));
  ordered_json object = parse_json<ordered_json>(contents, /*allow_exceptions=*/false);
  if (!object.is_object())
    return Error{Code::kConfig, text(file.string(), " is not a JSON object")};
  return object;
}

// The model's own config.json with the dtype that the weights have now.
Result<std::string> config_text(FileSystem& file_system, const HfExport& job) {
  if (job.assets.empty()) return hf_config_json(job.spec.shape, job.dtype, job.seq_len);
  LOCKSTEP_TRY(ordered_json config, json_object(file_system, job.assets / "config.json"));
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = job.dtype;
  return config.dump(2) + "\n";
}

// generation_config.json with job.ends among its eos_token_id; where the folder has none, the
// tokens of config.json, which transformers goes by then.
Result<void> write_generation(FileSystem& file_system, const HfExport& job,
                              const std::string& config) {
  ordered_json generation = ordered_json::object();
  if (!job.assets.empty() && file_system.exists(job.assets / kGeneration)) {
    LOCKSTEP_TRY(generation, json_object(file_system, job.assets / kGeneration));
  }
  const auto of_model = parse_json<ordered_json>(config, /*allow_exceptions=*/false);
  for (const char* const name : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (!generation.contains(name) && of_model.contains(name) && !of_model[name].is_null())
      generation[name] = of_model[name];
  const ordered_json there = generation.value("eos_token_id", ordered_json());
  ordered_json ends = there.is_array() ? there : ordered_json::array();
  if (there.is_number_integer()) ends.push_back(there);
  for (const uint32_t end : job.ends)
    if (std::find(ends.begin(), ends.end(), ordered_json(end)) == ends.end()) ends.push_back(end);
  generation["eos_token_id"] = ends;
  return publish_file(file_system, job.folder / kGeneration, generation.dump(2) + "\n");
}

Result<void> carry_assets(FileSystem& file_system, const HfExport& job, const std::string& config) {
  for (const auto& [name, contents] : job.tokenizer)
    LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, job.folder / name, contents));
  if (!job.chat_template.empty())
    LOCKSTEP_RETURN_IF_ERROR(
        publish_file(file_system, job.folder / kChatTemplate, job.chat_template));
  if (!job.ends.empty()) LOCKSTEP_RETURN_IF_ERROR(write_generation(file_system, job, config));
  if (job.assets.empty()) return {};
  std::vector<std::string> names;
  if (job.ends.empty()) names.push_back(kGeneration);
  if (job.carry_tokenizer) names.insert(names.end(), std::begin(kTokenizer), std::end(kTokenizer));
  for (const std::string& name : names) {
    if (!file_system.exists(job.assets / name)) continue;
    if (name == kChatTemplate && !job.chat_template.empty()) continue;
    LOCKSTEP_TRY(const std::string contents, read_file(file_system, job.assets / name));
    LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, job.folder / name, contents));
  }
  return {};
}

}  // namespace

Result<HfExportReport> export_to_hf(FileSystem& file_system, const HfExport& job) {
  const char* const last = job.adapters_alone ? "adapter_config.json" : "config.json";
  if (file_system.exists(job.folder / last))
    return Error{Code::kConfig,
                 text(job.folder.string(), job.adapters_alone ? " has an " : " has a ", last,
                      "; give a new folder")};
  if (job.spec.shape.family == ModelFamily::kLinear)
    return Error{Code::kConfig, "cannot export: transformers has no model of the family linear"};
  LOCKSTEP_TRY(const auto manifest, checkpoint::read_manifest(file_system, job.checkpoint));
  LOCKSTEP_RETURN_IF_ERROR(check_names(manifest, job.spec));
  std::unique_ptr<HfWeights> base;
  LOCKSTEP_TRY(const TensorReader read, reader_for(file_system, job, manifest, base));
  LOCKSTEP_TRY(const std::string config, job.adapters_alone
                                             ? Result<std::string>(adapter_config_json(
                                                   job.lora, job.spec.shape, job.assets.string()))
                                             : config_text(file_system, job));
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(job.folder));
  HfExportReport report;
  const std::vector<SafetensorsFile> files = plan_files(job);
  for (const SafetensorsFile& file : files) {
    LOCKSTEP_RETURN_IF_ERROR(write_weights(file_system, job, read, file));
    ++report.files;
    report.tensors += static_cast<int64_t>(file.header.entries.size());
    report.bytes += file.data_bytes();
  }
  if (files.size() > 1)
    LOCKSTEP_RETURN_IF_ERROR(
        publish_file(file_system, job.folder / kSafetensorsIndexFile, safetensors_index(files)));
  if (!job.adapters_alone) LOCKSTEP_RETURN_IF_ERROR(carry_assets(file_system, job, config));
  LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, job.folder / last, config));
  return report;
}

}  // namespace lockstep::hf
