#include "cli/submit/submit_command.h"

#include <algorithm>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/launch/launch_command.h"
#include "cli/shared/command_words.h"
#include "cli/shared/programs.h"
#include "cli/submit/batch_functions.h"
#include "launcher/control/incident.h"
#include "launcher/host/pipe.h"
#include "launcher/host/process.h"
#include "launcher/slurm/batch_script.h"
#include "launcher/slurm/node_cpus.h"
#include "layout/memory_plan.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kSbatchTimeoutMs = 60'000, kSinfoTimeoutMs = 20'000;

constexpr const char* kHelp =
    R"(lockstep submit CONFIG.toml [-N NODES] [sbatch option]… [--section.key value]…

Writes a batch script for the run, shows it, and submits it: one agent a node (`lockstep launch
--nnodes`), recovery inside the allocation, output in logs/<job name>/. The job is submitted with
--no-requeue --no-kill unless --requeue is given; docs/SLURM.md tells what follows from that. The
task of a node gets all its CPUs, or the part that goes with its GPUs, as sinfo tells, unless
--cpus-per-task or --exclusive is given. A job with GPUs needs a lockstep-worker with CUDA.

  --dry-run       shows the script; writes and submits nothing
  --min-nodes N   goes on with as few nodes as this when some are lost (1)
  --stage         each node unpacks programs and libraries on its own disk (TMPDIR) and trains with
                  these: on many nodes the shared file system serves one file, not hundreds a rank
  --gpus N        GPUs of all nodes together, the same number on each
  --check-gpus    only checks that the worker has CUDA (sbatch_files/submit asks)

Passed on to sbatch, or to srun (--environment, --container-…), as --name value or --name=value, or
-A, -N, -p, -t:
)";

constexpr const char* kSubmitExamples = R"(
All other words are those of `lockstep launch`. (--requeue is sbatch's here; what the agents may ask
for is --launcher.requeue auto|never|force.)

Examples:
  lockstep submit examples/demo.toml --nodes 4 --gpus-per-node 4 --time 24:00:00 \
      --training.slots 16
  lockstep submit my.toml -N 8 --min-nodes 6 -A project -p normal --gpus 32 --hint nomultithread
  lockstep submit my.toml -N 2 --gpus 8 --container-image site/lockstep:0.1.0
  lockstep submit my.toml --nodes 2 --requeue --dry-run
  lockstep submit my.toml --nodes 64 --gpus-per-node 4 --stage
)";

// "a run/7" -> "a_run_7": the name is a folder's, and a word of an #SBATCH line.
std::string as_job_name(std::string name) {
  for (char& c : name)
    if (c == '/' || c == ' ' || c == '%' || c == '\n') c = '_';
  return name;
}

Result<void> check_gpus() {
  LOCKSTEP_TRY(const auto worker, worker_of_gpu_nodes());
  return require_gpu_worker(worker);
}

// Without a word Slurm gives a task one CPU, and all workers of the node would share it.
Result<void> ask_for_cpus(launcher::slurm::SubmitWords& words) {
  if (words.has("cpus-per-task") || words.has("exclusive")) return {};
  const launcher::slurm::NodeShare share{
      .partitions =
          words.sbatch_value("partition", variable(own_environment(), "SBATCH_PARTITION")),
      .gpus = words.gpus_per_node(),
      .one_a_core = words.sbatch_value("hint", "") == "nomultithread"};
  const auto lines = launcher::run_program(
      "sinfo", {"--noheader", text("--format=", launcher::slurm::kSinfoFormat)}, "",
      kSinfoTimeoutMs);
  const auto cpus =
      lines ? launcher::slurm::cpus_of_share(lines.value().standard_output, share) : lines.error();
  if (!cpus)
    return Error{Code::kConfig,
                 text(cpus.error().message,
                      "; give the CPUs of the workers of a node with --cpus-per-task N, "
                      "or take whole nodes with --exclusive")};
  words.sbatch.emplace_back("cpus-per-task", std::to_string(cpus.value()));
  return {};
}

// Of the job when no node of it is lost, as far as its words tell.
int64_t ranks_of(const launcher::slurm::SubmitWords& words, const Config& config) {
  const auto& workers = config.launcher.nproc_per_node;
  const int64_t nodes = std::max(words.min_nodes, words.most_nodes() - config.launcher.spares);
  const int64_t each = workers.empty() ? words.gpus_per_node() : workers.front();
  return nodes * std::max<int64_t>(1, each);
}

Result<int> submit(const std::vector<std::string>& arguments) {
  launcher::slurm::BatchScript script;
  LOCKSTEP_TRY(script.words, launcher::slurm::split_words(arguments));
  LOCKSTEP_TRY(const Config config, read_config(script.words.launch, "submit"));
  const int64_t ranks = ranks_of(script.words, config);
  if (const auto idle = layout::idle_ranks_warning(config, ranks); !idle.empty()) log_warning(idle);
  return submit_script(std::move(script), config.job.name);
}

}  // namespace

Result<int> submit_script(launcher::slurm::BatchScript script, const std::string& job_name) {
  if (const auto asked = ask_for_cpus(script.words); !asked) {
    if (!script.words.dry_run) return asked.error();
    log_warning("this script could not be submitted: ", asked.error().message);
  }
  // What a container has is asked there, by the agents.
  const bool has_image = script.words.has("container-image");
  const bool is_here = !has_image && !script.words.has("environment");
  if (script.words.gpus_per_node() > 0 && is_here && !script.words.dry_run)
    LOCKSTEP_RETURN_IF_ERROR(check_gpus());
  script.job_name = as_job_name(script.words.sbatch_value("job-name", job_name));
  script.program = has_image ? "lockstep" : entry_program();
  script.functions = kBatchFunctions;
  const std::string contents = launcher::slurm::batch_script_text(script);
  std::cout << contents << std::flush;
  if (script.words.dry_run) return launcher::kExitDone;

  const auto path = launcher::slurm::batch_script_path(script.job_name);
  FileSystem& file_system = posix_file_system();
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(path.parent_path()));
  LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, path, contents));
  LOCKSTEP_TRY(const auto done,
               launcher::run_program("sbatch", {path.string()}, "", kSbatchTimeoutMs));
  std::cout << "\n" << path.string() << "\n" << done.standard_output;
  if (done.exit_status != launcher::kExitDone)
    log_error("sbatch refused the job; to try again, run: sbatch ", path.string());
  return done.exit_status;
}

int submit_command(int argc, char** argv) {
  const std::string help = text(kHelp, launcher::slurm::sbatch_help(), kSubmitExamples);
  if (const auto end = show_help(help, true, argc, argv)) return *end;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments == std::vector<std::string>{"--check-gpus"}) {
    const auto checked = check_gpus();
    if (!checked) log_error(checked.error().message);
    return checked ? launcher::kExitDone : launcher::kExitConfig;
  }
  const auto submitted = submit(arguments);
  if (submitted) return submitted.value();
  log_error(submitted.error().message);
  return exit_status(submitted.error().code);
}

}  // namespace lockstep::cli
