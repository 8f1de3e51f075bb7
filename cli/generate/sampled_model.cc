#include "cli/generate/sampled_model.h"

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "base/text.h"
#include "checkpoint/record/manifest.h"
#include "cli/shared/model_tokenizer.h"
#include "cli/shared/run_args.h"
#include "config/config.h"
#include "data/prepare/chat_template.h"
#include "data/tokenizer/open_tokenizer.h"
#include "hf/hf_config.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

Result<nlohmann::json> object_in(FileSystem& file_system, const fs::path& path) {
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, path));
  auto object = parse_json(contents, /*allow_exceptions=*/false);
  if (!object.is_object())
    return Error{Code::kConfig, text(path.string(), " is not a JSON object")};
  return object;
}

// What config.json of a folder says: as transformers writes it; GPT-2's name is n_positions.
int64_t positions_of(const nlohmann::json& config) {
  for (const char* const name : {"max_position_embeddings", "n_positions"})
    if (config.contains(name) && config[name].is_number_integer())
      return config[name].get<int64_t>();
  return 0;
}

bool is_bf16(const nlohmann::json& config) {
  for (const char* const name : {"dtype", "torch_dtype"})
    if (config.contains(name)) return config[name] == "bfloat16";
  return false;
}

void add_end(uint32_t id, SampledModel& model) {
  if (std::find(model.ends.begin(), model.ends.end(), id) == model.ends.end())
    model.ends.push_back(id);
}

// The ids of eos_token_id, one or a list; others than numbers of tokens are passed over.
void add_ends(const nlohmann::json& object, SampledModel& model) {
  const nlohmann::json eos = object.value("eos_token_id", nlohmann::json());
  for (const nlohmann::json& id : eos.is_array() ? eos : nlohmann::json::array({eos}))
    if (id.is_number_unsigned() && id.get<int64_t>() < model.tokenizer->vocab_size())
      add_end(id.get<uint32_t>(), model);
}

Result<SampledModel> of_folder(FileSystem& file_system, const fs::path& folder,
                               const std::string& tokenizer) {
  SampledModel model;
  model.of_folder = true;
  model.flags = {"--model.hf_assets_path=" + folder.string()};
  LOCKSTEP_TRY(const nlohmann::json config, object_in(file_system, folder / "config.json"));
  model.context = positions_of(config);
  if (is_bf16(config)) model.flags.push_back("--training.mixed_precision_param=bfloat16");
  const std::string name = tokenizer.empty() ? folder.string() : tokenizer;
  auto opened = data::open_tokenizer(file_system, name);
  if (!opened.ok() && tokenizer.empty())
    return Error{opened.error().code, text(opened.error().message, "; give one with --tokenizer")};
  if (!opened.ok()) return opened.error();
  model.tokenizer = std::move(opened.value().tokenizer);
  add_end(model.tokenizer->end_of_document(), model);
  add_ends(config, model);
  const auto generation = object_in(file_system, folder / "generation_config.json");
  if (generation.ok()) add_ends(generation.value(), model);
  model.chat_folder = folder.string();
  return model;
}

// What a run's config says about lengths. A model of a folder may see more than the run trained
// on.
void take_context(FileSystem& file_system, const Config& config, SampledModel& model) {
  model.context = model.trained_length = config.training.seq_len;
  if (config.model.hf_assets_path.empty()) return;
  const auto of_model =
      object_in(file_system, fs::path(config.model.hf_assets_path) / "config.json");
  if (of_model.ok()) model.context = std::max(model.context, positions_of(of_model.value()));
}

// The template that the data were made with, else that of the folder it was started from.
Result<void> take_words_of_run(FileSystem& file_system, const fs::path& run, SampledModel& model) {
  LOCKSTEP_TRY(const auto path, data_path_of_run(file_system, run));
  LOCKSTEP_TRY(model.tokenizer, data::tokenizer_of_dataset(file_system, path));
  add_end(model.tokenizer->end_of_document(), model);
  LOCKSTEP_TRY(const ParsedConfig parsed, parse_config("", model.flags));
  take_context(file_system, parsed.config, model);
  const ChatOfData chat = chat_of(file_system, parsed.config.data);
  model.chat_template = chat.name;
  model.chat_folder = chat.folder.string();
  model.chat_date = chat.date;
  if (!model.chat_template.empty() || !model.chat_folder.empty()) return {};
  const std::string key = "--model.hf_assets_path=";
  for (const std::string& flag : model.flags)
    if (flag.starts_with(key) && flag.size() > key.size()) {
      model.chat_folder = flag.substr(key.size());
      return {};
    }
  model.no_chat_template =
      text("the data of ", run.string(), " hold no chats; give --chat-template ", "NAME, one of ",
           data::ChatTemplate::known_names());
  return {};
}

}  // namespace

Result<SampledModel> open_sampled_model(FileSystem& file_system, const std::string& path,
                                        const std::string& tokenizer) {
  fs::path run = path;
  SampledModel model;
  if (file_system.exists(run / checkpoint::kManifestName)) {
    const fs::path whole = fs::absolute(run / "").parent_path();
    model.checkpoint = whole.string();
    run = whole.parent_path().parent_path();
  } else if (!file_system.exists(run / "run_args.json")) {
    if (file_system.exists(run / "config.json")) return of_folder(file_system, run, tokenizer);
    if (file_system.exists(run / "adapter_config.json"))
      return Error{Code::kConfig, text(path,
                                       " has adapters alone; run `lockstep export` without --lora "
                                       "to make a folder with the whole model")};
    if (!file_system.exists(run)) return Error{Code::kConfig, hf::no_such_folder(path)};
    return Error{Code::kConfig,
                 text(path,
                      ": this is not a run's folder (no run_args.json), a checkpoint (no "
                      "manifest.json) or a Hugging Face folder (no config.json)")};
  }
  if (!tokenizer.empty())
    return Error{Code::kConfig, text("--tokenizer is for a Hugging Face folder; ", path,
                                     " is a run's folder, whose data name their tokenizer")};
  LOCKSTEP_TRY(model.flags, run_flags(file_system, run));
  model.run = run;
  LOCKSTEP_RETURN_IF_ERROR(take_words_of_run(file_system, run, model));
  return model;
}

}  // namespace lockstep::cli
