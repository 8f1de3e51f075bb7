#include "cli/submit/submit_command.h"

#include <iostream>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/launch/launch_command.h"
#include "cli/shared/programs.h"
#include "cli/submit/batch_functions.h"
#include "launcher/control/incident.h"
#include "launcher/host/pipe.h"
#include "launcher/host/process.h"
#include "launcher/slurm/batch_script.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kSbatchTimeoutMs = 60'000;

constexpr const char* kHelp =
    R"(lockstep submit CONFIG.toml [--nodes N] [sbatch option]… [--section.key value]…

Writes a batch script for the run, shows it, and submits it: one agent a node (`lockstep launch
--nnodes`), recovery inside the allocation, output in logs/<job name>/. The job is submitted with
--no-requeue --no-kill unless --requeue is given; docs/SLURM.md tells what follows from that.

  --dry-run       shows the script; writes and submits nothing
  --min-nodes N   goes on with as few nodes as this when some are lost (1)

Passed on to sbatch, as --name value or --name=value:
)";

constexpr const char* kExamples = R"(
All other words are those of `lockstep launch`. (--requeue is sbatch's here; what the agents may ask
for is --launcher.requeue auto|never|force.)

Examples:
  lockstep submit examples/demo.toml --nodes 4 --gpus-per-node 4 --time 24:00:00
  lockstep submit my.toml --nodes 8 --min-nodes 6 --account project --training.steps 5000
  lockstep submit my.toml --nodes 2 --requeue --dry-run
)";

// "a run/7" -> "a_run_7": the name is a folder's, and a word of an #SBATCH line.
std::string as_job_name(std::string name) {
  for (char& c : name)
    if (c == '/' || c == ' ' || c == '%' || c == '\n') c = '_';
  return name;
}

Result<int> submit(const std::vector<std::string>& arguments) {
  launcher::slurm::BatchScript script;
  LOCKSTEP_TRY(script.words, launcher::slurm::split_words(arguments));
  LOCKSTEP_TRY(const Config config, read_config(script.words.launch, "submit"));
  script.job_name = as_job_name(script.words.sbatch_value("job-name", config.job.name));
  script.program = entry_program();
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
    log_error("sbatch has not taken the job; the script is kept: sbatch ", path.string());
  return done.exit_status;
}

}  // namespace

int submit_command(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  for (const std::string& argument : arguments) {
    if (argument != "--help" && argument != "-h") continue;
    std::cout << kHelp << launcher::slurm::sbatch_help() << kExamples;
    return launcher::kExitDone;
  }
  const auto submitted = submit(arguments);
  if (submitted) return submitted.value();
  log_error(submitted.error().message);
  return exit_status(submitted.error().code);
}

}  // namespace lockstep::cli
