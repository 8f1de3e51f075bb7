#include "cli/plan/plan_probe.h"

#include <cmath>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/shared/bounded_run.h"
#include "data/formats/npy_file.h"
#include "launcher/host/scratch_folder.h"
#include "layout/memory_plan.h"

namespace lockstep::cli {
namespace {

using std::filesystem::path;

constexpr size_t kLastWords = 1500;  // of a run that failed, in bytes

// One step's batch of token 0, sparse on the disk.
Result<void> write_tokens(FileSystem& file_system, const path& file, const Config& config) {
  const int64_t sequences = config.slots() * config.training.local_batch_size;
  const std::string preamble = data::npy_preamble("<u2", {1, sequences, config.training.seq_len});
  LOCKSTEP_TRY(const auto out, file_system.create(file));
  LOCKSTEP_RETURN_IF_ERROR(out->write_at(as_bytes(preamble), 0));
  return out->truncate(static_cast<int64_t>(preamble.size()) +
                       2 * sequences * config.training.seq_len);
}

// Here all ranks are on one node. Copies are as large as where there are several.
Config on_one_node(Config config, const layout::Ranks& ranks) {
  if (ranks.per_node > 0 && config.parallelism.data_parallel_shard_degree == 0)
    config.parallelism.data_parallel_shard_degree = ranks.per_node;
  return config;
}

std::vector<std::string> flags(const Config& config, const layout::ModelSpec& spec,
                               const path& folder, const layout::Ranks& ranks) {
  std::vector<std::string> words = {
      "--training.steps=2",
      "--training.epochs=0",
      "--lr_scheduler.warmup_steps=0",
      "--lr_scheduler.total_steps=0",
      "--checkpoint.enable=false",
      "--checkpoint.keep_best=false",
      "--checkpoint.memory_interval=0",
      "--checkpoint.buddy=false",
      "--checkpoint.initial_load_path=",
      "--checkpoint.exclude_from_loading=",
      "--validation.freq=0",
      "--validation.patience=0",
      "--metrics.enable_tensorboard=false",
      "--profiling.enable_profiling=false",
      "--data.kind=npy",
      "--data.path=" + (folder / "tokens.npy").string(),
      "--data.sources=",
      "--data.weights=",
      "--job.dump_folder=" + (folder / "run").string(),
      text("--launcher.nproc_per_node=", ranks.world_size),
      "--launcher.min_nproc=1",
      text("--parallelism.data_parallel_shard_degree=",
           on_one_node(config, ranks).parallelism.data_parallel_shard_degree),
  };
  if (!config.model.hf_assets_path.empty()) {
    words.push_back("--model.init=random");
    return words;
  }
  const layout::DecoderShape& s = spec.shape;
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"dim", s.dim},
                                                              {"n_layers", s.n_layers},
                                                              {"n_heads", s.n_heads},
                                                              {"n_kv_heads", s.n_kv_heads},
                                                              {"head_dim", s.head_dim},
                                                              {"ffn_dim", s.ffn_dim},
                                                              {"vocab_size", s.vocab_size}})
    words.push_back(text("--model.", key, "=", value));
  return words;
}

Result<Probe> run_in(const path& folder, const Config& config, const layout::ModelSpec& spec,
                     std::vector<std::string> arguments, const layout::Ranks& ranks,
                     double limit_s) {
  FileSystem& file_system = posix_file_system();
  LOCKSTEP_RETURN_IF_ERROR(write_tokens(file_system, folder / "tokens.npy", config));
  launcher::WorkerProcess::Options options;
  options.program = launcher::running_executable();
  options.arguments = std::move(arguments);
  options.arguments.insert(options.arguments.begin(), "train");
  for (std::string& word : flags(config, spec, folder, ranks))
    options.arguments.push_back(std::move(word));
  options.environment = plain_environment();
  options.stdout_path = options.stderr_path = folder / "log";
  const double start = system_clock().monotonic_s();
  LOCKSTEP_TRY(auto run, launcher::WorkerProcess::spawn(options));
  const auto status = wait_for(run, limit_s);
  if (!status)
    return Error{Code::kTimeout,
                 text("two steps took longer than --probe-seconds ", fixed(limit_s, 0),
                      ", so they were stopped; raise --probe-seconds")};
  if (status->exit_code != 0 || status->signal != 0) {
    const auto log = read_file(file_system, folder / "log");
    const std::string words = log.ok() ? log.value() : log.error().message;
    return Error{Code::kBug, text("the probe's run ended with status ", status->exit_code,
                                  ", signal ", status->signal, ":\n",
                                  words.substr(words.size() - std::min(words.size(), kLastWords)))};
  }
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, folder / "run/metrics.json"));
  const auto metrics = parse_json(contents, /*allow_exceptions=*/false);
  if (!metrics.is_object()) return Error{Code::kBug, "the probe's run wrote no metrics.json"};
  const auto bytes = [&](const char* key) {
    return static_cast<int64_t>(std::llround(metrics.value(key, 0.0) * 1e9));
  };
  const auto plan =
      layout::plan_memory(on_one_node(config, ranks), spec,
                          {ranks.world_size, /*per_node=*/0, ranks.sizes, /*first_alone=*/true});
  return Probe{plan.peak_bytes, bytes("peak_memory_GB"), bytes("peak_rss_GB"),
               system_clock().monotonic_s() - start};
}

}  // namespace

Result<Probe> probe(const Config& config, const layout::ModelSpec& spec,
                    std::vector<std::string> arguments, const layout::Ranks& ranks,
                    double limit_s) {
  LOCKSTEP_TRY(const auto scratch, launcher::ScratchFolder::create());
  return run_in(scratch.path(), config, spec, std::move(arguments), ranks, limit_s);
}

}  // namespace lockstep::cli
