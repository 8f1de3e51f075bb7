#include "cli/launch/launch_command.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "checkpoint/record/catalog.h"
#include "cli/launch/launch_in_allocation.h"
#include "cli/launch/resume_check.h"
#include "cli/serve/run_pages.h"
#include "cli/shared/command_words.h"
#include "cli/shared/model_tokenizer.h"
#include "cli/shared/programs.h"
#include "cli/shared/version.h"
#include "config/config_words.h"
#include "data/loader/open_dataset.h"
#include "hf/configured_model.h"
#include "hf/hf_weights.h"
#include "launcher/agent/agent.h"
#include "launcher/host/process.h"
#include "launcher/host/run_files.h"
#include "launcher/net/descriptor_limit.h"
#include "launcher/net/endpoint.h"
#include "layout/memory_plan.h"
#include "layout/model_spec.h"

namespace lockstep::cli {
namespace {

using launcher::Launcher;

constexpr const char* kTrainHelp =
    R"(lockstep train CONFIG.toml [--section.key value …] [--dry-run]

Trains on this machine with one CPU process; give --nproc-per-node N for more.
It continues from the newest checkpoint in the run's folder if there is one. Ctrl-C saves and stops;
a second Ctrl-C, a second later, stops without saving. It restarts nothing after a failure;
`lockstep launch` does.

  --dry-run    starts nothing: checks the config and the data, and prints the whole config as it
               would be run, with what it would start from, as a TOML file (`launch` has it too)

Examples:
  lockstep train examples/demo.toml
  lockstep train examples/demo.toml --dry-run > whole.toml
  lockstep train examples/demo.toml --training.steps 200 --optimizer.lr 1e-3
  lockstep train examples/demo.toml --nproc-per-node 2 --data_parallel ddp
  srun --ntasks-per-node=8 lockstep train config.toml           # ranks come from SLURM_*
  torchrun --no-python --nproc-per-node 2 lockstep train config.toml
)";

constexpr const char* kLaunchHelp =
    R"(lockstep launch CONFIG.toml [--section.key value …]

Trains on this machine like `lockstep train`, and restarts the workers from the newest checkpoint
when one dies or hangs. The loss curve does not depend on how often that happens, nor on how many
workers are left. `lockstep status RUN_FOLDER` shows the ranks.

With --nnodes, one `lockstep launch` runs on each of several nodes that see the same run folder:
they find each other, and continue without any node that is lost. All end with the same status;
under Slurm the one that coordinates at the end acts for the job.

  --nproc-per-node N,M,…     workers of the first, second, … generation; the last number repeats
  --max-restarts N           restarts in a row without a new checkpoint before it gives up; at
                             most 3 (more count as 3)
  --launcher.on_worker_loss  respawn (default): as many workers as before; shrink: those left
  --requeue auto|never|force under Slurm, when this allocation is lost or its time ends: ask for
                             another where the job was submitted with --requeue; never; always
  --nnodes N | MIN:MAX       nodes; --nproc-per-node is then the number of each of them
  --rdzv-endpoint E          HOST:PORT of the node that coordinates at first, or file:DIR;
                             without it they meet in the run folder
  --rdzv-id ID               tells jobs at one endpoint apart; SLURM_JOB_ID without it
  --on-node-loss P           shrink (default): a spare takes over, or continue with MIN or more;
                             spare: a spare, else end; wait: for as many as before; fail: end
  --spares N                 nodes kept out while there are more than MIN
  --local-addr A             the interface or address to use on this node
  --status-endpoint HOST:PORT|INTERFACE:PORT
                             a status page and Prometheus metrics; the log shows their address

Examples:
  lockstep launch examples/demo.toml --nproc-per-node 3
  lockstep launch examples/demo.toml --nproc-per-node 2,3,1   # a drill: other sizes
  lockstep launch config.toml --nproc-per-node 8 \
      --launcher.on_worker_loss shrink --launcher.min_nproc 4
  srun --ntasks=1 lockstep launch config.toml    # in a batch script; see lockstep submit
  srun --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0 \
      lockstep launch config.toml --nnodes 3:4 --nproc-per-node 8   # as lockstep submit does it
  lockstep launch config.toml --nnodes 2 --rdzv-endpoint 10.0.0.1:29400   # on both machines

Exit status: 0 done, 64 wrong config, 70 bug, 71 out of memory, 74 disk full or a limit on file
sizes, 75 run it again to resume, 76 a peer was lost, 93 do not restart (the same failure again, or
three restarts without progress).
)";

// Whether this process looks at all files of the data: one of a node does.
bool is_first_of_node(const Environment& environment) {
  if (launcher::detect_launcher(environment) == Launcher::kAlone) return true;
  auto orders = launcher::orders_from(environment);
  return !orders || orders->local_rank == 0;
}

// A thousand agents at once would all read the same tokenizers, and only warn.
bool is_first_task(const Environment& environment) {
  return parse_number(variable(environment, "SLURM_PROCID")).value_or(0) == 0;
}

// What every rank would find wrong with the data and the sizes, said before any of them starts.
// Returns the model; training.epochs becomes training.steps.
Result<layout::ModelSpec> check_inputs(Config& config) {
  FileSystem& file_system = posix_file_system();
  LOCKSTEP_TRY(const auto summary, data::summary_of(file_system, config.data));
  LOCKSTEP_TRY(const auto spec, hf::configured_model(config, summary.vocab_size));
  LOCKSTEP_TRY(const auto weights, hf::initial_weights(file_system, config, spec));
  const bool checks_files = is_first_of_node(own_environment());
  const auto open = [&](const char* split) -> Result<std::unique_ptr<data::TokenDataset>> {
    if (checks_files) LOCKSTEP_RETURN_IF_ERROR(data::check_files(file_system, config.data, split));
    return data::open_dataset(file_system, config.data,
                              data::dataset_options(config, split, spec.shape.vocab_size));
  };
  LOCKSTEP_TRY(const auto opened, open("train"));
  LOCKSTEP_RETURN_IF_ERROR(data::resolve_epochs(config, *opened));
  if (checks_files) LOCKSTEP_RETURN_IF_ERROR(check_resume(file_system, config, spec));
  if (config.validation.freq == 0) return spec;
  if (const auto held_out = open("val"); !held_out)
    return held_out.error().in(
        "held-out samples for validation (set validation.freq = 0 to train without)");
  return spec;
}

std::string start_text(const Config& config) {
  const auto found = checkpoint::list_checkpoints(posix_file_system(), config.checkpoint_folder());
  const auto& all = found.ok() ? found.value() : std::vector<checkpoint::CatalogEntry>();
  const auto newest =
      std::find_if(all.begin(), all.end(), [](const auto& e) { return e.usable(); });
  if (config.checkpoint.enable && newest != all.end())
    return text("step ", newest->step, ": ", newest->directory.string());
  if (!config.checkpoint.initial_load_path.empty())
    return text("step 0: weights of ", config.checkpoint.initial_load_path);
  return text("step 0: ", hf::starts_from_folder(config)
                              ? "weights of " + config.model.hf_assets_path
                              : "random weights");
}

// Of a node, at first.
int64_t worker_count(const Config& config, const Environment& environment) {
  const auto& list = config.launcher.nproc_per_node;
  return list.empty() ? launcher::default_worker_count(environment, "/proc/driver/nvidia/gpus",
                                                       built_for_gpus())
                      : list.front();
}

std::string ranks_text(const Config& config, const Environment& environment) {
  if (launcher::detect_launcher(environment) != Launcher::kAlone)
    return "one of the ranks that srun or torchrun starts";
  const int64_t workers = worker_count(config, environment);
  return config.launcher.nnodes == "1"
             ? text(workers, " on this machine")
             : text(workers, " on each of ", config.launcher.nnodes, " nodes");
}

// --dry-run: what would be run, as a config file that runs it.
std::string dry_run_text(Config config, const layout::ModelSpec& spec,
                         const Environment& environment) {
  // A folder's family and sizes in place of the defaults of the keys, which are another model's.
  if (!config.model.hf_assets_path.empty()) layout::write_keys(spec.shape, config.model);
  const Config whole = resolved(config);
  return text("# Nothing was started. This config would be run:\n", "# model: ", config.model.name,
              ", ", grouped(spec.parameter_count()), " parameters, vocabulary ",
              grouped(spec.shape.vocab_size), "\n", "# ranks: ", ranks_text(config, environment),
              "; `lockstep plan` shows the memory of each, `lockstep doctor` tests the devices\n",
              "# a step: ", whole.training.slots, " slots of ", config.training.local_batch_size,
              " x ", config.training.seq_len, " tokens, ", grouped(config.tokens_per_step()),
              " in all; ", grouped(config.training.steps), " steps\n",
              "# from: ", start_text(config), "\n", "# to: ", whole.job.dump_folder, "\n\n",
              config_toml(config));
}

std::string resume_command(const std::string& command, const std::vector<std::string>& arguments) {
  std::string out = text("cd ", shell_quoted(std::filesystem::current_path().string()), " && ",
                         shell_quoted(entry_program().string()), " ", command);
  for (const std::string& argument : arguments) out += " " + shell_quoted(argument);
  return out;
}

// Weights that know one tokenizer's ids read another one's as other words.
void compare_tokenizers(const Config& config) {
  if (config.model.hf_assets_path.empty()) return;
  const DataTokenizer found = data_tokenizer(posix_file_system(), config);
  if (found.match == TokenizerMatch::kOther)
    log_warning(found.difference,
                "; the same token ids mean other text to the weights. Prepare the data again with "
                "--tokenizer ",
                config.model.hf_assets_path);
}

// srun or torchrun started us as one of several: become this rank's worker.
int become_worker(launcher::WorkerProcess::Options worker, const Config& config) {
  const auto orders = launcher::orders_from(worker.environment);
  if (!orders) {
    log_error(orders.error().message);
    return launcher::kExitConfig;
  }
  if (orders.value().rank == 0) compare_tokenizers(config);
  worker.environment = launcher::worker_variables(std::move(worker.environment), orders.value(),
                                                  config.training.threads);
  log_error(launcher::exec_program(worker).message);
  return launcher::kExitConfig;
}

// One more than the last generation of the launches before in this run folder; 1 at first.
int64_t next_generation(const Config& config) {
  const auto before =
      launcher::read_membership(posix_file_system(), config.dump_folder() / "workers.json");
  const int64_t last = before.ok() ? before.value().generation : 0;
  return last >= 0 && last < launcher::control::kMostGeneration ? last + 1 : 1;  // else: garbled
}

// "4" or "2:4".
Result<std::pair<int64_t, int64_t>> node_counts(const std::string& words) {
  constexpr int64_t kMost = 16384;
  std::vector<int64_t> counts;
  for (const std::string& word : split(words, ':'))
    counts.push_back(parse_number(word).value_or(0));
  const bool sane = counts.size() <= 2 && counts.front() >= 1 && counts.back() <= kMost &&
                    counts.front() <= counts.back();
  if (!sane)
    return Error{Code::kConfig, text("--nnodes ", words, ": it must be N or MIN:MAX with MIN at ",
                                     "most MAX, 1 to ", kMost)};
  return std::pair(counts.front(), counts.back());
}

// The first that is not empty. Requires: one is not.
std::string first_of(const std::vector<std::string>& words) {
  return *std::find_if(words.begin(), words.end(), [](const auto& word) { return !word.empty(); });
}

// One that others meet by a name may have nodes of other allocations too. 0: nobody knows.
int64_t nodes_of_allocation(const std::string& rdzv_id, const Environment& environment) {
  if (!rdzv_id.empty() || !variable(environment, "SLURM_HET_SIZE").empty()) return 0;
  return parse_number(variable(environment, "SLURM_JOB_NUM_NODES")).value_or(0);
}

Result<launcher::NodesOptions> nodes_options(const Config& config, const Environment& environment) {
  const auto& from = config.launcher;
  launcher::NodesOptions nodes;
  LOCKSTEP_TRY(const auto counts, node_counts(from.nnodes));
  nodes.min = counts.first;
  nodes.max = counts.second;
  nodes.spares = from.spares;
  nodes.last_call_s = from.last_call_seconds;
  nodes.join_s = from.join_seconds;
  nodes.patience.silence_ns = static_cast<int64_t>(from.silence_seconds * 1e9);
  nodes.patience.ack_ns = static_cast<int64_t>(from.ack_seconds * 1e9);
  nodes.patience.reap_ns = static_cast<int64_t>(from.reap_seconds * 1e9);
  nodes.endpoint = from.rdzv_endpoint;
  if (!nodes.endpoint.empty() && !nodes.endpoint.starts_with("file:"))
    if (const auto at = launcher::net::parse_endpoint(nodes.endpoint); !at)
      return at.error().in("--rdzv-endpoint");
  nodes.job = first_of({from.rdzv_id, variable(environment, "SLURM_JOB_ID"), "job"});
  nodes.coming = nodes_of_allocation(from.rdzv_id, environment);
  nodes.name = first_of({variable(environment, "LOCKSTEP_NODE_NAME"),
                         variable(environment, "SLURMD_NODENAME"), host_name(), "node"});
  nodes.local_address = from.local_addr;
  std::string common;
  for (const std::string& line : common_lines(config)) common += line + "\n";
  nodes.run = xxh3_64(common);
  nodes.on_loss = from.on_node_loss;
  nodes.bars_wrong = config.audit.action == AuditAction::kEvict;
  nodes.bars_broken = from.health == HealthAction::kEvict;
  nodes.growth.slots = config.slots();
  if (from.grow == Grow::kAuto && config.checkpoint.enable)
    nodes.growth.after_ns = static_cast<int64_t>(from.grow_after_seconds * 1e9);
  nodes.replaces_slow = from.straggler == StragglerAction::kEvict;
  if (nodes.several() && from.on_worker_loss == OnWorkerLoss::kShrink)
    return Error{Code::kConfig,
                 "launcher.on_worker_loss = \"shrink\" is for one machine; with "
                 "--nnodes a node starts as many workers as before"};
  return nodes;
}

// A test gives an agent a folder of its own in place of /sys.
launcher::health::ReadCounters hardware_of_node(const Config& config,
                                                const Environment& environment) {
  if (config.launcher.health == HealthAction::kOff) return nullptr;
  return launcher::health::hardware_counters(
      first_of({variable(environment, "LOCKSTEP_SYSFS_ROOT"), "/sys"}));
}

launcher::control::SupervisorOptions supervisor_options(const Config& config,
                                                        const Environment& environment) {
  launcher::control::SupervisorOptions options;
  options.nproc_per_node = config.launcher.nproc_per_node;
  options.default_nproc =
      launcher::default_worker_count(environment, "/proc/driver/nvidia/gpus", built_for_gpus());
  options.shrink = config.launcher.on_worker_loss == OnWorkerLoss::kShrink;
  options.first_generation = next_generation(config);
  options.min_nproc = config.launcher.min_nproc;
  options.max_restarts = config.launcher.max_restarts;
  options.grace_s = config.launcher.grace_seconds;
  options.hang_s = config.launcher.hang_seconds;
  options.slow_factor = config.launcher.straggler_factor;
  options.slow_s = config.launcher.straggler_seconds;
  return options;
}

// Of an agent on one machine.
launcher::AgentOptions agent_options(const Config& config,
                                     const launcher::WorkerProcess::Options& worker) {
  launcher::AgentOptions options;
  options.supervisor = supervisor_options(config, worker.environment);
  options.worker_program = worker.program;
  options.worker_arguments = worker.arguments;
  options.environment = worker.environment;
  options.dump_folder = config.dump_folder();
  options.threads = config.training.threads;
  options.hardware = hardware_of_node(config, worker.environment);
  options.status_endpoint = config.launcher.status_endpoint;
  options.status_pages = run_pages(posix_file_system(), system_clock(), options.dump_folder);
  return options;
}

Result<std::string> dry_run(const std::string& command, const std::vector<std::string>& arguments) {
  LOCKSTEP_TRY(Config config, read_config(arguments, command));
  const Environment environment = own_environment();
  LOCKSTEP_TRY(const auto nodes, nodes_options(config, environment));
  LOCKSTEP_TRY(const layout::ModelSpec model, check_inputs(config));
  for (const std::string& note : model.notes) log_warning(note);
  compare_tokenizers(config);
  // Those that srun or torchrun starts are counted when they meet.
  const bool alone = launcher::detect_launcher(environment) == Launcher::kAlone;
  const int64_t ranks =
      worker_count(config, environment) * std::max(nodes.min, nodes.max - nodes.spares);
  const std::string idle = alone ? layout::idle_ranks_warning(config, ranks) : "";
  if (!idle.empty()) log_warning(idle);
  return dry_run_text(config, model, environment);
}

int show_dry_run(const std::string& command, const std::vector<std::string>& arguments) {
  const auto whole = dry_run(command, arguments);
  if (whole) std::cout << whole.value();
  if (!whole) log_error(whole.error().message);
  return whole ? launcher::kExitDone : launcher::kExitConfig;
}

// The worker, for a config whose inputs are there; one for GPUs where Slurm has given this step
// some. (A whole node's GPUs are the job's even if nobody asked for them, but not its steps'.)
Result<std::filesystem::path> program_for(Config& config, const Environment& environment) {
  LOCKSTEP_RETURN_IF_ERROR(check_inputs(config));
  LOCKSTEP_TRY(const auto worker, worker_program());
  if (!variable(environment, "SLURM_STEP_GPUS").empty())
    LOCKSTEP_RETURN_IF_ERROR(require_gpu_worker(worker));
  return worker;
}

// What has been read, not the file: that may be edited while the run goes on.
std::vector<std::string> worker_arguments(const Config& config) {
  std::vector<std::string> all = config_words(config);
  all.insert(all.begin(), "train");
  return all;
}

int run(const std::string& command, const std::vector<std::string>& arguments, bool restart) {
  auto config = read_config(arguments, command);
  if (!config) {
    log_error(config.error().message);
    return launcher::kExitConfig;
  }
  launcher::WorkerProcess::Options worker;
  worker.environment = own_environment();
  const auto nodes = nodes_options(config.value(), worker.environment);
  if (restart && !nodes) {
    log_error(nodes.error().message);
    return launcher::kExitConfig;
  }
  worker.arguments = worker_arguments(config.value());
  const auto program = program_for(config.value(), worker.environment);
  if (!program) {
    log_error(program.error().message);
    return launcher::kExitConfig;
  }
  worker.program = program.value();
  if (launcher::detect_launcher(worker.environment) != Launcher::kAlone) {
    if (!restart) return become_worker(std::move(worker), config.value());
    if (!nodes.value().several()) {
      log_error(
          "srun or torchrun started `lockstep launch` several times; give the number of nodes with "
          "--nnodes and start one launch on each node (`srun --ntasks-per-node=1`)");
      return launcher::kExitConfig;
    }
  }
  if (is_first_task(worker.environment)) compare_tokenizers(config.value());
  launcher::AgentOptions options = agent_options(config.value(), worker);
  if (restart) options.nodes = nodes.value();
  if (!restart) options.supervisor.max_restarts = 0;
  const std::string resume = resume_command(command, arguments);
  launcher::hold_stop_signals();
  // Who is left when the coordinator and all that could take its place are lost starts over, as an
  // agent would that is started now; whom it finds alive and out of reach it leaves alone.
  const auto supervise = [&](launcher::AskTimeLeft time_left) {
    options.resume_command = time_left ? "" : resume;  // the allocation says its own
    options.time_left = std::move(time_left);
    auto end = launcher::run_agent(posix_file_system(), system_clock(), options);
    while (end.alone) {
      const auto last =
          launcher::read_membership(posix_file_system(), options.dump_folder / "workers.json");
      if (last && last.value().state != "running") break;  // the others have ended the run
      log_warning(
          "this node lost the coordinator; it is rejoining the surviving nodes through the run "
          "folder");
      options.supervisor = supervisor_options(config.value(), worker.environment);
      options.nodes.starts_over = true;
      if (!options.nodes.endpoint.starts_with("file:")) options.nodes.endpoint.clear();
      end = launcher::run_agent(posix_file_system(), system_clock(), options);
      if (!end.speaks_for_job && end.exit_status == launcher::kExitBug)
        end.exit_status = launcher::kExitResume;
    }
    return end;
  };
  if (!restart) return supervise({}).exit_status;
  return launch_in_allocation(config.value(), worker.environment, resume, supervise);
}

// Help with every key of the config.
std::string whole_help(const char* help) { return text(help, "\nEvery key:\n", config_help()); }

}  // namespace

Result<Config> read_config(const std::vector<std::string>& arguments, const std::string& command) {
  const std::vector<std::string> words = positional_words(arguments);
  if (const auto flags = parse_config("", arguments); !flags) {
    // The value of a flag that is not known is a word of its own.
    const auto file = std::find_if(words.begin(), words.end(), [](const std::string& word) {
      return launcher::is_regular_file(word);
    });
    return file == words.end() ? flags.error() : parse_config(*file, arguments).error();
  }
  if (words.empty())
    return Error{Code::kConfig,
                 text("no CONFIG.toml is given; see `lockstep ", command, " --help`")};
  if (words.size() > 1) return Error{Code::kConfig, text("unexpected argument \"", words[1], "\"")};
  const std::string& path = words[0];
  const bool read_again = command != "plan" && command != "doctor";
  if (read_again && posix_file_system().exists(path) && !launcher::is_regular_file(path))
    return Error{Code::kConfig, text(path,
                                     " is no file: whoever resumes the run reads the config "
                                     "again, so a pipe does not do")};
  auto parsed = parse_config(path, arguments);
  if (!parsed && parsed.error().code == Code::kNotFound)
    return Error{Code::kConfig, parsed.error().message};
  if (!parsed) return parsed.error();
  LOCKSTEP_RETURN_IF_ERROR(validate(parsed.value().config, parsed.value().places));
  return std::move(parsed).value().config;
}

int train_command(int argc, char** argv) {
  if (const auto end = show_help(whole_help(kTrainHelp), true, argc, argv)) return *end;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (std::erase(arguments, "--dry-run") > 0) return show_dry_run("train", arguments);
  launcher::net::raise_descriptor_limit();
  return run("train", arguments, false);
}

int launch_command(int argc, char** argv) {
  if (const auto end = show_help(whole_help(kLaunchHelp), true, argc, argv)) return *end;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (std::erase(arguments, "--dry-run") > 0) return show_dry_run("launch", arguments);
  launcher::net::raise_descriptor_limit();
  return run("launch", arguments, true);
}

}  // namespace lockstep::cli
