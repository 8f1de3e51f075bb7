#include "cli/doctor/doctor_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "base/hash.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "cli/doctor/doctor_probe.h"
#include "cli/doctor/doctor_report.h"
#include "cli/launch/launch_command.h"
#include "cli/plan/plan_command.h"
#include "cli/shared/command_words.h"
#include "cli/shared/programs.h"
#include "cli/shared/version.h"
#include "data/loader/open_dataset.h"
#include "launcher/host/environment.h"

namespace lockstep::cli {
namespace {

constexpr int kExitBad = 1;
constexpr const char* kDoctorAbout =
    R"(Checks this node before a job: GPUs, matrix products, memory, the disk where checkpoints will
lie, room for them, limits, the address that other nodes will use, versions. One verdict a line: ok,
warn or bad, and what to do. With CONFIG and its keys it also checks what that run needs of the
node. It writes 256 MiB into the file system of the checkpoint folder, in a file that is removed
when the command ends.

Under srun with one task a node, the nodes meet in the run's folder, and node 0 prints the result of
all: missing nodes, clocks, libraries or devices that differ, slow nodes, and the speed between each
pair of nodes. Each node listens at one port meanwhile.

Exit status: 0; 1 when something is bad; 64 for a wrong config.

Examples:
  lockstep doctor
  lockstep doctor run.toml --nproc-per-node 8
  lockstep doctor run.toml --world-size 32 --json | jq '.nodes[].verdicts[].found'
  srun --ntasks-per-node=1 lockstep doctor run.toml || scancel $SLURM_JOB_ID
)";

struct DoctorOptions {
  int64_t world_size = 0;  // 0: this node's ranks
  bool json = false;
};

// This process's place among those that one srun started, a node each.
struct Place {
  int64_t rank = 0, nodes = 1;
  std::string nonce;
};
Result<Place> find_place(const Environment& environment) {
  if (launcher::detect_launcher(environment) == launcher::Launcher::kAlone) return Place{};
  LOCKSTEP_TRY(const WorkerOrders orders, launcher::orders_from(environment));
  return Place{orders.rank, orders.world_size, orders.nonce};
}

// What the config asks of this node.
Result<NodeNeeds> needs_here(const DoctorOptions& o, Config config, int64_t nodes,
                             const NodeFacts& facts) {
  LOCKSTEP_TRY(const layout::ModelSpec spec, model_of(config));
  if (config.training.epochs > 0) {
    LOCKSTEP_TRY(const auto train,
                 data::open_dataset(posix_file_system(), config.data,
                                    data::dataset_options(config, "train", spec.shape.vocab_size)));
    LOCKSTEP_RETURN_IF_ERROR(data::resolve_epochs(config, *train));
  }
  const std::vector<int64_t>& nproc = config.launcher.nproc_per_node;
  const int64_t here = nproc.empty()
                           ? launcher::default_worker_count(
                                 own_environment(), "/proc/driver/nvidia/gpus", built_for_gpus())
                           : nproc.front();
  const int64_t world_size = std::max(o.world_size, here * nodes);
  const auto sizes =
      facts.compute.cuda_devices > 0 ? layout::WorkSizes::kGpu : layout::WorkSizes::kCpu;
  return needs_of(config, spec, {world_size, here, sizes}, here);
}

ProbeOptions probe_options(const Config& config) {
  ProbeOptions options;
  options.checkpoint_folder = config.checkpoint_folder();
  if (!config.checkpoint.memory_folder.empty())
    options.memory_folder = config.checkpoint.memory_folder;
  options.worker_program = worker_program();
  options.threads = config.training.threads;
  options.local_address = config.launcher.local_addr;
  options.rendezvous = config.launcher.rdzv_endpoint;
  return options;
}

Result<MeetingOptions> meeting_options(const Config& config, const Place& place) {
  MeetingOptions options;
  options.folder = config.dump_folder() / ("doctor." + place.nonce);
  LOCKSTEP_TRY(const uint64_t word, random_number());
  options.session = hex64(word);
  options.rank = place.rank;
  options.nodes = place.nodes;
  return options;
}

// Every node's own verdicts come from node 0, which shows them all; the others show nothing.
Result<DoctorReport> examine(const DoctorOptions& o, const std::vector<std::string>& arguments) {
  Config config;
  if (!arguments.empty()) {
    LOCKSTEP_TRY(config, read_config(arguments, "doctor"));
  }
  LOCKSTEP_TRY(const Place place, find_place(own_environment()));
  FileSystem& file_system = posix_file_system();
  const NodeFacts own = probe_node(file_system, system_clock(), probe_options(config));
  NodeNeeds needs;
  if (!arguments.empty()) {
    LOCKSTEP_TRY(needs, needs_here(o, config, place.nodes, own));
  }
  DoctorReport report;
  if (place.nodes == 1) {
    report.nodes.push_back({own, judge(own, needs)});
    return report;
  }
  LOCKSTEP_TRY(const MeetingOptions meeting, meeting_options(config, place));
  if (place.rank > 0) {
    LOCKSTEP_RETURN_IF_ERROR(attend_meeting(file_system, system_clock(), meeting, own));
    return report;
  }
  LOCKSTEP_TRY(const auto met, lead_meeting(file_system, system_clock(), meeting, own));
  for (const MetNode& node : met) report.nodes.push_back({node.facts, judge(node.facts, needs)});
  report.together = judge_together(met, place.nodes);
  return report;
}

}  // namespace

int doctor_command(int argc, char** argv) {
  DoctorOptions o;
  CLI::App app{kDoctorAbout, "lockstep doctor [CONFIG.toml] [--section.key value ...]"};
  app.add_option("--world-size,--world_size", o.world_size, "Ranks of the job, on all nodes")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("W");
  app.add_flag("--json", o.json, "Facts and verdicts as JSON");
  app.allow_extras();
  if (const auto end = parse_words(app, argc, argv)) return *end;
  const auto report = examine(o, app.remaining());
  if (!report.ok()) {
    log_error(report.error().message);
    return exit_status(report.error().code);
  }
  if (report.value().nodes.empty()) return 0;  // node 0 shows ours
  if (o.json) {
    std::cout << doctor_json(report.value()) << "\n";
  } else {
    std::cout << doctor_text(report.value());
  }
  return report.value().worst() == Level::kBad ? kExitBad : 0;
}

}  // namespace lockstep::cli
