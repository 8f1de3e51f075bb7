#include "cli/launch/launch_in_allocation.h"

#include "base/log.h"
#include "checkpoint/record/catalog.h"
#include "launcher/control/incident.h"
#include "launcher/host/process.h"
#include "launcher/slurm/allocation.h"
#include "launcher/slurm/ends.h"

namespace lockstep::cli {
namespace {

using launcher::slurm::Allocation;

int64_t newest_committed_step(const std::filesystem::path& folder) {
  const auto found = checkpoint::list_from_newest(posix_file_system(), folder);
  if (!found) return -1;
  for (const auto& entry : found.value())
    if (entry.committed) return entry.step;
  return -1;
}

}  // namespace

int launch_in_allocation(const Config& config, const Environment& environment,
                         const std::string& resume_command,
                         const std::function<launcher::AgentEnd(launcher::AskTimeLeft)>& run) {
  // Slurm sends TERM again while we leave; what is decided must still be done.
  const launcher::StopSignals held;
  auto allocation = Allocation::find(
      posix_file_system(), system_clock(), launcher::slurm::run_slurm, environment,
      {.requeue = config.launcher.requeue,
       .run_folder = config.dump_folder(),
       .resume_command = resume_command,
       .committed_step = [&config] { return newest_committed_step(config.checkpoint_folder()); }});
  if (const auto begun = allocation.begin(); !begun) {
    log_error(begun.error().message);
    return launcher::kExitNoProgress;
  }
  launcher::AskTimeLeft ask;
  if (allocation.in_job())
    ask = [&allocation]() -> Result<std::optional<int64_t>> {
      LOCKSTEP_TRY(const auto left, allocation.ask_time_left());
      return left ? std::optional(left->seconds) : std::nullopt;
    };
  const launcher::AgentEnd end = run(std::move(ask));
  if (!end.speaks_for_job) return end.exit_status;
  const int status = allocation.conclude(end.exit_status, end.nodes);
  const auto launch = environment.find(launcher::slurm::kLaunchVariable);
  if (launch == environment.end()) return status;
  const auto written =
      launcher::slurm::write_end(posix_file_system(), config.dump_folder(), launch->second, status);
  if (!written) log_warning("slurm_end.json: ", written.error().message);
  return status;
}

}  // namespace lockstep::cli
