#include "cli/sweep/sweep_submit.h"

#include <algorithm>
#include <iostream>

#include "base/number.h"
#include "base/text.h"
#include "cli/submit/submit_command.h"
#include "cli/sweep/sweep_row.h"
#include "launcher/control/incident.h"

namespace lockstep::cli {
namespace {

// "0-7", or "0-7%2" where the user says how many may run at a time.
Result<void> ask_for_array(launcher::slurm::SubmitWords& words, size_t count) {
  std::string at_once = words.sbatch_value("array", "");
  const bool fine = at_once.empty() ||
                    (at_once.starts_with('%') && parse_number(at_once.substr(1)).value_or(0) > 0);
  if (!fine)
    return Error{Code::kConfig, text("--array ", at_once,
                                     " is not allowed, because a sweep counts its tasks itself; ",
                                     "--array %2 lets two of them run at a time")};
  std::erase_if(words.sbatch, [](const auto& option) { return option.first == "array"; });
  words.sbatch.emplace_back("array", text("0-", count - 1, at_once));
  return {};
}

}  // namespace

Result<int> submit_sweep(FileSystem& file_system, const SweepPlan& plan,
                         launcher::slurm::SubmitWords words) {
  launcher::slurm::BatchScript script;
  for (const PlannedRow& each : plan.rows) {
    const auto folder = plan.out / each.row.name;
    LOCKSTEP_TRY(const RowOutcome outcome, read_row(file_system, folder));
    if (!outcome.settled() && !each.config.empty()) script.rows.push_back(folder.string());
  }
  if (script.rows.empty()) {
    std::cout << "every row is settled; --report shows the table\n";
    return launcher::kExitDone;
  }
  LOCKSTEP_RETURN_IF_ERROR(ask_for_array(words, script.rows.size()));
  script.words = std::move(words);
  return submit_script(std::move(script), "sweep_" + plan.out.filename().string());
}

}  // namespace lockstep::cli
