// What a Config means, and whether it can be run.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <type_traits>

#include "base/text.h"
#include "config/config.h"
#include "config/config_field.h"
#include "config/foreign_keys.h"

namespace lockstep {
inline namespace base {
namespace {

constexpr int64_t kDefaultSlots = 4;

template <typename... Parts>
Error wrong(const Parts&... parts) {
  return {Code::kConfig, text(parts...)};
}

Result<void> check_model(const Config::Model& model) {
  if (model.head_dim == 0 && model.dim % model.n_heads != 0)
    return wrong("model.dim = ", model.dim, " is not divisible by model.n_heads = ", model.n_heads,
                 "; change one of them, or set model.head_dim");
  const int64_t head_dim = model.head_dim > 0 ? model.head_dim : model.dim / model.n_heads;
  if (head_dim == 0 || head_dim % 2 != 0)
    return wrong("the head dimension is ", head_dim,
                 model.head_dim > 0 ? " (model.head_dim)" : " (model.dim / model.n_heads)",
                 ": rotary embeddings need an even number");
  if (model.n_heads % model.n_kv_heads != 0)
    return wrong("model.n_heads = ", model.n_heads,
                 " is not divisible by model.n_kv_heads = ", model.n_kv_heads,
                 ": every key/value head serves the same number of query heads");
  return {};
}

Result<void> check_batch(const Config::Training& training) {
  const int64_t global = training.global_batch_size, local = training.local_batch_size;
  if (global == 0) return {};
  if (global % local != 0)
    return wrong("training.global_batch_size = ", global,
                 " is not divisible by training.local_batch_size = ", local,
                 ", but a step needs a whole number of slots of ", local, " sequences");
  if (training.slots > 0 && training.slots * local != global)
    return wrong("training.slots = ", training.slots, " and training.global_batch_size = ", global,
                 " disagree: ", training.slots, " slots of local_batch_size = ", local, " are ",
                 training.slots * local, " sequences; set only one of the two");
  if (global / local > 65536)
    return wrong("training.global_batch_size / training.local_batch_size = ", global / local,
                 " slots; the limit is 65536");
  return {};
}

Result<void> check_processes(const Config& config) {
  for (const int64_t nproc : config.launcher.nproc_per_node) {
    if (config.parallelism.strategy == ShardingStrategy::kSingle && nproc > 1)
      return wrong(
          "parallelism.strategy = single is for one process, but "
          "launcher.nproc_per_node holds ",
          nproc, "; use ddp or full_shard");
    if (nproc < config.launcher.min_nproc)
      return wrong("launcher.nproc_per_node holds ", nproc,
                   ", which is less than launcher.min_nproc = ", config.launcher.min_nproc);
  }
  return {};
}

// 0 stands for what follows from the number of nodes.
Result<void> check_silence(const Config::Launcher& launcher) {
  constexpr double kLeast = 0.5, kPlain = 1.5;
  const double silence = launcher.silence_seconds, ack = launcher.ack_seconds;
  if (silence > 0 && silence < kLeast)
    return wrong("launcher.silence_seconds = ", silence, ": must be 0, or ", kLeast,
                 " or more, because nodes report every 0.2 s");
  const double least = (silence > 0 ? silence : kPlain) * 2 / 3;
  if (ack > 0 && ack < least)
    return wrong(
        "launcher.ack_seconds = ", ack, ": must be 0, or ", least,
        " or more, which is two thirds of the silence that is allowed (launcher.silence_seconds)");
  return {};
}

Result<void> check_slot_map(const Config& config) {
  if (config.parallelism.slot_map != SlotMapKind::kCyclic &&
      config.training.reduction == Reduction::kNative)
    return wrong("parallelism.slot_map = ", config.parallelism.slot_map,
                 " adds slots before they are sent, but training.reduction = native leaves every "
                 "sum to the backend; use parallelism.slot_map = cyclic");
  return {};
}

Result<void> check_reshard(const Config& config) {
  const Config::Parallelism& p = config.parallelism;
  if (p.reshard_after_forward == ReshardAfterForward::kNode &&
      p.strategy != ShardingStrategy::kFullShard)
    return wrong(
        "parallelism.reshard_after_forward = node is for parallelism.strategy = full_shard; ",
        p.strategy, " does not gather parameters from other nodes twice");
  return {};
}

Result<void> check_names(const Config& config) {
  const std::string& name = config.job.name;
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    return wrong("job.name = \"", name,
                 "\" must be a single folder name; to write elsewhere, set job.dump_folder");
  if (config.checkpoint.folder.empty())
    return wrong("checkpoint.folder is empty; to save nothing use --checkpoint.no_enable");
  if (config.checkpoint.initial_load_path.empty() &&
      !config.checkpoint.exclude_from_loading.empty())
    return wrong(
        "checkpoint.exclude_from_loading needs checkpoint.initial_load_path, which is empty");
  if (config.checkpoint.keep_latest_k == 1)
    return wrong(
        "checkpoint.keep_latest_k = 1 would leave nothing to fall back to when the newest "
        "checkpoint is damaged; use 2 or more, or 0 to keep all");
  const Config::Checkpoint& c = config.checkpoint;
  if (c.interval > 0 && c.ephemeral_interval >= c.interval)
    return wrong("checkpoint.ephemeral_interval = ", c.ephemeral_interval,
                 " gives no save between those of checkpoint.interval = ", c.interval,
                 "; use a smaller one, or 0 for none");
  return {};
}

Result<void> check_lora(const Config& config) {
  if (config.lora.rank == 0 && !config.lora.target_modules.empty())
    return wrong(
        "lora.target_modules is set but lora.rank is 0, so every weight would be trained; set "
        "lora.rank, or leave out lora.target_modules");
  if (config.lora.rank == 0 || config.checkpoint.initial_load_path.empty()) return {};
  return wrong(
      "with lora.rank = ", config.lora.rank,
      " checkpoints hold only adapters, and the weights come from model.hf_assets_path. Run "
      "`lockstep export ",
      config.checkpoint.initial_load_path,
      " FOLDER` and set model.hf_assets_path = FOLDER in place of checkpoint.initial_load_path");
}

Result<void> check_optimizer(const Config& config) {
  if (config.optimizer.name != OptimizerKind::kMuon) return {};
  if (config.optimizer.state_dtype != FloatType::kFloat32)
    return wrong("optimizer.state_dtype = ", config.optimizer.state_dtype,
                 " works with AdamW only, and optimizer.name = ", config.optimizer.name,
                 " keeps its state in float32; use optimizer.name = AdamW, or "
                 "optimizer.state_dtype = float32");
  if (config.lora.rank == 0) return {};
  return wrong("optimizer.name = ", config.optimizer.name,
               " needs whole matrices, but lora.rank = ", config.lora.rank,
               " trains adapters in their place; use optimizer.name = AdamW, or lora.rank = 0");
}

Result<void> check_sources(const Config::Data& data) {
  constexpr size_t kMaxSources = 1024;
  if (!data.path.empty() && !data.sources.empty())
    return wrong("data.path and data.sources are both given; name every source in data.sources");
  if (data.sources.size() > kMaxSources)
    return wrong("data.sources names ", data.sources.size(), " sources; the limit is ",
                 kMaxSources);
  if (!data.weights.empty() && data.weights.size() != data.sources.size())
    return wrong("data.weights holds ", data.weights.size(), " weights for ", data.sources.size(),
                 " sources in data.sources; give one weight for each source, or none");
  return {};
}

Result<void> check_validation(const Config& config) {
  const auto needs = [&](const char* key, const auto& value) {
    return wrong(key, " = ", value,
                 " needs validations, but validation.freq is 0; set validation.freq");
  };
  if (config.validation.patience > 0 && config.validation.freq == 0)
    return needs("validation.patience", config.validation.patience);
  if (!config.checkpoint.keep_best) return {};
  if (!config.checkpoint.enable)
    return wrong("checkpoint.keep_best needs checkpoints, but checkpoint.enable is false");
  if (config.validation.freq == 0) return needs("checkpoint.keep_best", "true");
  return {};
}

Result<void> check_audit(const Config& config) {
  if (config.audit.slot < config.slots()) return {};
  return wrong("audit.slot = ", config.audit.slot, " is not a slot: a step has the slots 0 to ",
               config.slots() - 1, " (training.slots = ", config.slots(), ")");
}

Result<void> check_memory_tier(const Config::Checkpoint& checkpoint) {
  if (checkpoint.memory_interval > 0 && !checkpoint.enable)
    return wrong("checkpoint.memory_interval = ", checkpoint.memory_interval,
                 " needs checkpoints, but checkpoint.enable is false; snapshots in memory only add "
                 "to checkpoints on disk");
  if (checkpoint.buddy && checkpoint.memory_interval == 0)
    return wrong(
        "checkpoint.buddy copies snapshots, but checkpoint.memory_interval = 0 takes none; set "
        "checkpoint.memory_interval");
  return {};
}

// Of a key that another tool has under the same name, with other values.
std::string other_meaning(const std::string& name) {
  for (const ForeignTool& tool : foreign_tools())
    for (const ForeignKey& key : tool.keys)
      if (key.becomes == Becomes::kOtherwise && key.name == name)
        return text("; ", tool.name, "'s ", name, " becomes ", key.key, " here (", key.words, ")");
  return "";
}

}  // namespace

Result<void> check_limits(const Config& config, const ConfigField& field) {
  const ConfigLimits& limits = field.limits;
  const auto in_range = [&](double value) {
    return std::isfinite(value) && (limits.above_min ? value > limits.min : value >= limits.min) &&
           value <= limits.max;
  };
  const bool fits = std::visit(
      [&](auto member) {
        const auto& value = *member(const_cast<Config&>(config));
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::vector<int64_t>>)
          return std::all_of(value.begin(), value.end(),
                             [&](int64_t item) { return in_range(static_cast<double>(item)); });
        else if constexpr (std::is_arithmetic_v<T>)
          return in_range(static_cast<double>(value));
        else
          return true;
      },
      field.member);
  if (fits) return {};
  return wrong_value(field, value_text(config, field));
}

Error wrong_value(const ConfigField& field, const std::string& value) {
  const std::string meant = nearest(value, words_of(field));
  std::string needed = limits_text(field);
  if (needed.empty()) needed = "a finite number";
  if (needed.starts_with(">") && std::strtod(value.c_str(), nullptr) > field.limits.max)
    needed = text("<= ", field.limits.max);
  return wrong(field.name(), " = ", value.empty() ? "\"\"" : value, ": must be ", needed,
               meant.empty() ? "" : text("; did you mean ", meant, "?"),
               other_meaning(field.name()));
}

Result<void> validate(const Config& config, const std::map<std::string, std::string>& places) {
  std::string wrong_lines;
  const auto note = [&wrong_lines](const Result<void>& checked) {
    if (!checked) wrong_lines += (wrong_lines.empty() ? "" : "\n") + checked.error().message;
  };
  for (const ConfigField& field : config_fields()) {
    const auto place = places.find(field.name());
    const auto kept = check_limits(config, field);
    note(kept || place == places.end() ? kept : wrong(place->second, kept.error().message));
  }
  if (wrong_lines.empty()) {
    note(check_names(config));
    note(check_slot_map(config));
    note(check_reshard(config));
    note(check_validation(config));
    note(check_audit(config));
    note(check_memory_tier(config.checkpoint));
    note(check_lora(config));
    note(check_optimizer(config));
    note(check_sources(config.data));
    note(check_model(config.model));
    note(check_batch(config.training));
    note(check_processes(config));
    note(check_silence(config.launcher));
  }
  return wrong_lines.empty() ? Result<void>() : Result<void>(wrong(wrong_lines));
}

Config resolved(const Config& config) {
  Config whole = config;
  whole.job.dump_folder = config.dump_folder().string();
  if (whole.model.head_dim == 0 && whole.model.n_heads > 0)
    whole.model.head_dim = whole.model.dim / whole.model.n_heads;
  if (whole.model.ffn_dim == 0) whole.model.ffn_dim = (8 * whole.model.dim + 191) / 192 * 64;
  if (whole.lr_scheduler.total_steps == 0) whole.lr_scheduler.total_steps = whole.training.steps;
  whole.training.slots = config.slots();
  whole.training.global_batch_size = config.slots() * config.training.local_batch_size;
  return whole;
}

std::filesystem::path Config::dump_folder() const {
  if (!job.dump_folder.empty()) return job.dump_folder;
  return std::filesystem::path("results") / "training" / job.name;
}

std::filesystem::path Config::checkpoint_folder() const {
  return dump_folder() / checkpoint.folder;  // an absolute folder wins
}

int64_t Config::slots() const {
  if (training.slots > 0) return training.slots;
  if (training.global_batch_size > 0 && training.local_batch_size > 0)
    return std::max<int64_t>(1, training.global_batch_size / training.local_batch_size);
  return kDefaultSlots;
}

int64_t Config::tokens_per_step() const {
  return slots() * training.local_batch_size * training.seq_len;
}

}  // namespace base
}  // namespace lockstep
