#include "cli/why/account_facts.h"

#include <algorithm>

#include "base/text.h"
#include "cli/serve/step_line.h"
#include "cli/shared/event_list.h"
#include "cli/shared/file_end.h"
#include "cli/shared/run_args.h"
#include "launcher/host/run_files.h"
#include "launcher/slurm/starts.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kMostBytes = int64_t{256} << 20;  // of a file, from its end
constexpr size_t kLogLines = 5;

std::vector<LoggedStep> read_steps(FileSystem& file_system, const std::filesystem::path& path) {
  std::vector<LoggedStep> steps;
  const std::string contents = end_of_file(file_system, path, kMostBytes);
  for (std::string_view rest = contents; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (auto line = parse_step_line(rest.substr(0, end)))
      steps.push_back(
          {line->step, std::max(0.0, double{line->at(Field::kStepTime)}), line->unix_s});
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return steps;
}

// "device=CPU … + NVIDIA H100" of a run on GPUs.
bool is_on_gpus(const std::vector<std::string>& identity) {
  return std::any_of(identity.begin(), identity.end(), [](const std::string& line) {
    return line.starts_with("device=") && line.find(" + ") != line.npos;
  });
}

// A crash may say more in the log than the events do.
void add_log(FileSystem& file_system, const std::filesystem::path& folder, Account& account) {
  if (account.rank < 0) return;
  const auto path = launcher::log_path(folder, account.rank);
  if (!file_system.exists(path)) return;
  account.log = path.string();
  if (account.cause == Cause::kCrashed || account.cause == Cause::kBug ||
      account.cause == Cause::kNoProgram)
    account.log_lines = launcher::last_lines(file_system, path, 0, kLogLines);
}

}  // namespace

Result<Account> read_account(FileSystem& file_system, Clock& clock,
                             const std::filesystem::path& folder) {
  RunFacts facts;
  facts.folder = folder.string();
  RunObserver observer(file_system, clock, folder);
  LOCKSTEP_TRY(facts.status, observer.look());
  facts.launches = launches_of(
      parse_events(end_of_file(file_system, folder / "events.jsonl", kMostBytes), SIZE_MAX).events);
  facts.steps = read_steps(file_system, folder / "metrics.jsonl");
  facts.on_gpus = is_on_gpus(identity_of_run(file_system, folder));
  facts.slurm_job = launcher::slurm::read_starts(file_system, folder).job;
  facts.now_s = static_cast<double>(clock.unix_ns()) * 1e-9;
  Account account = account_of(facts);
  add_log(file_system, folder, account);
  return account;
}

}  // namespace lockstep::cli
