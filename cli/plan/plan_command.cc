#include "cli/plan/plan_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "base/log.h"
#include "base/text.h"
#include "cli/launch/launch_command.h"
#include "cli/plan/plan_device.h"
#include "cli/plan/plan_report.h"
#include "cli/shared/command_words.h"
#include "cli/shared/exit_status.h"
#include "cli/shared/size_words.h"
#include "data/loader/open_dataset.h"
#include "hf/configured_model.h"
#include "layout/decoder_model.h"

namespace lockstep::cli {
namespace {

using layout::ModelSpec;
using layout::ScalingStrategy;

constexpr const char* kPlanAbout =
    R"(Predicts the memory of a rank in a training run, where in the step the peak is, how well the
slots use W ranks, and what would fit. With --device it also predicts the time of a step by phase,
the MFU, and all memory of device and host. It starts nothing unless --probe is given.

CONFIG.toml and --section.key value are those of `lockstep train`. Without a data set, give
--model.vocab_size.

Examples:
  lockstep plan examples/demo.toml --world-size 4
  lockstep plan run.toml --world-size 8 --device-memory 80GiB --gradient_checkpointing
  lockstep plan run.toml --world-size 64 --device h100
  lockstep plan run.toml --world-size 8 --device-memory 80GiB --scaling-strategy layers
  lockstep plan run.toml --world-size 2 --scaling-factor 0.5 --probe     # and runs two steps
  lockstep plan run.toml --world-size 16 --device-memory 40GiB --json | jq .largest_local_batch_size
)";

struct PlanOptions {
  int64_t world_size = 0;      // 0: launcher.nproc_per_node, else 1
  int64_t ranks_per_node = 0;  // 0: all
  std::string device_memory, device, scaling = "all";
  double scaling_factor = 1, probe_seconds = 120;
  bool probe = false, json = false;
};

// With a unit: 24 is rather 24 GiB than 24 bytes.
Result<int64_t> bytes_of(const std::string& words) {
  const auto bytes = bytes_of_words(words);
  if (bytes && (words.back() == 'B' || words.back() == 'b')) return *bytes;
  return Error{Code::kConfig, text("--device-memory ", words,
                                   " is not a size; use for example 80GiB, 40GB or 512MiB")};
}

Result<int64_t> world_size_of(const PlanOptions& o, const Config& config) {
  const std::vector<int64_t>& nproc = config.launcher.nproc_per_node;
  const int64_t w = o.world_size > 0 ? o.world_size : nproc.empty() ? 1 : nproc.front();
  if (config.parallelism.strategy == ShardingStrategy::kSingle && w > 1)
    return Error{Code::kConfig, text("parallelism.strategy = single runs on one rank, and "
                                     "--world-size is ",
                                     w, "; use ddp or full_shard")};
  return w;
}

// A few sizes on both sides of V, and the one that was asked for.
std::vector<layout::Occupancy> occupancies(int64_t slots, int64_t world_size) {
  std::vector<int64_t> sizes{1, 2, 3, 4, 6, 8, slots, world_size};
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::vector<layout::Occupancy> all;
  for (const int64_t w : sizes)
    if (w <= std::max(slots, world_size)) all.push_back(layout::occupancy(slots, w));
  return all;
}

// With and without sharded state, and as the config has it.
std::vector<PlanReport::Candidate> largest_models(const PlanReport& r) {
  std::vector<ShardingStrategy> strategies{ShardingStrategy::kDdp, ShardingStrategy::kFullShard};
  const ShardingStrategy own = r.config.parallelism.strategy;
  if (std::count(strategies.begin(), strategies.end(), own) == 0) strategies.push_back(own);
  std::vector<PlanReport::Candidate> candidates;
  for (const ShardingStrategy strategy : strategies) {
    Config config = r.config;
    config.parallelism.strategy = strategy;
    candidates.push_back({strategy, layout::largest_model(config, r.spec.shape, r.scaling, r.ranks,
                                                          r.device_bytes)});
  }
  return candidates;
}

Result<PlanReport> report_of(const PlanOptions& o, const std::vector<std::string>& arguments) {
  PlanReport r;
  LOCKSTEP_TRY(r.config, read_config(arguments, o.probe ? "plan --probe" : "plan"));
  LOCKSTEP_TRY(r.ranks.world_size, world_size_of(o, r.config));
  r.ranks.per_node = o.ranks_per_node;
  layout::DeviceRates rates;
  if (!o.device.empty()) {
    LOCKSTEP_TRY(rates, device_of(o.device));
    r.ranks.sizes = rates.sizes();
    if (o.ranks_per_node == 0) r.ranks.per_node = static_cast<int64_t>(rates.ranks_per_node);
  }
  LOCKSTEP_TRY(r.spec, model_of(r.config));
  for (const std::string& note : r.spec.notes) log_warning(note);
  if (rates.gpu() && r.spec.shape.experts > 0)
    return Error{Code::kConfig, text("--device ", o.device, ": the family ", r.spec.shape.family,
                                     " has experts, which run on CPUs only")};
  r.scaling = o.scaling == "layers" ? ScalingStrategy::kLayers : ScalingStrategy::kAll;
  if (o.scaling_factor != 1.0)
    r.spec =
        layout::create(layout::scaled(r.spec.shape, r.scaling, o.scaling_factor), r.config.lora);
  r.plan = layout::plan_memory(r.config, r.spec, r.ranks);
  r.occupancy = occupancies(r.config.slots(), r.ranks.world_size);
  if (!o.device.empty()) r.device = plan_device(r.config, r.spec, r.ranks, r.plan, rates);
  if (!o.device_memory.empty()) {
    LOCKSTEP_TRY(r.device_bytes, bytes_of(o.device_memory));
    r.largest_batch = layout::largest_batch(r.config, r.spec, r.ranks, r.device_bytes);
    r.largest_models = largest_models(r);
  }
  if (!o.probe) return r;
  if (o.scaling_factor != 1.0 && !r.config.model.hf_assets_path.empty())
    return Error{
        Code::kConfig,
        "--probe runs the model of model.hf_assets_path as it is, so leave out --scaling-factor"};
  LOCKSTEP_TRY(r.probe, probe(r.config, r.spec, arguments, r.ranks, o.probe_seconds));
  return r;
}

int run(const PlanOptions& o, const std::vector<std::string>& arguments) {
  const auto report = report_of(o, arguments);
  if (!report.ok()) {
    log_error(report.error().message);
    return status_of_input(report.error().code);
  }
  if (o.json) {
    std::cout << plan_json(report.value()) << "\n";
  } else {
    print_plan(std::cout, report.value());
  }
  return 0;
}

}  // namespace

Result<ModelSpec> model_of(const Config& config) {
  int64_t vocab_size = 0;
  const bool open = config.model.hf_assets_path.empty() && config.model.vocab_size == 0;
  if (open && (!config.data.path.empty() || !config.data.sources.empty())) {
    auto summary = data::summary_of(posix_file_system(), config.data);
    if (!summary.ok())
      return summary.error().in("the vocabulary's size; --model.vocab_size gives it without data");
    vocab_size = summary->vocab_size;
  }
  return hf::configured_model(config, vocab_size);
}

int plan_command(int argc, char** argv) {
  PlanOptions o;
  CLI::App app{kPlanAbout, "lockstep plan CONFIG.toml [--section.key value ...]"};
  app.add_option("--world-size,--world_size", o.world_size, "Ranks")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("W");
  app.add_option("--ranks-per-node,--ranks_per_node", o.ranks_per_node,
                 "Ranks on a node, which add their gradients before they leave the node (default: "
                 "all, or the ranks_per_node of the device); hybrid shards over them unless "
                 "data_parallel_shard_degree is set")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app.add_option("--device-memory,--device_memory", o.device_memory,
                 "Memory of a rank's device, for tensors")
      ->type_name("80GiB");
  app.add_option("--device", o.device,
                 "Predict the time of a step on this device: " + layout::built_in_devices() +
                     ", or a TOML file of rates")
      ->type_name("NAME|FILE");
  app.add_option("--scaling-strategy,--scaling_strategy", o.scaling,
                 "How models grow: layers, heads and width together, or layers only")
      ->check(CLI::IsMember({"all", "layers"}))
      ->type_name("all|layers");
  app.add_option("--scaling-factor,--scaling_factor", o.scaling_factor,
                 "Plan the model scaled by this factor")
      ->check(CLI::Range(0.01, 1e6))
      ->type_name("F");
  app.add_flag("--probe", o.probe,
               "Run two steps on this machine with random tokens and measure them");
  app.add_option("--probe-seconds,--probe_seconds", o.probe_seconds,
                 "The probe is stopped after this long (120)")
      ->check(CLI::Range(1.0, 86400.0))
      ->type_name("S");
  app.add_flag("--json", o.json, "As JSON");
  app.allow_extras();
  if (const auto end = parse_words(app, argc, argv)) return *end;
  return run(o, app.remaining());
}

}  // namespace lockstep::cli
