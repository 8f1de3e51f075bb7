#include "cli/sweep/sweep_row.h"

#include <algorithm>

#include "base/number.h"
#include "base/text.h"
#include "launcher/control/incident.h"

namespace lockstep::cli {
namespace {

constexpr const char* kStatusFile = "exit_status";

Result<std::optional<int>> read_exit_status(FileSystem& file_system,
                                            const std::filesystem::path& path) {
  if (!file_system.exists(path)) return std::optional<int>();
  LOCKSTEP_TRY(std::string words, read_file(file_system, path));
  if (words.ends_with('\n')) words.pop_back();
  return parse_number<int>(words);  // a line that was cut off: it has not come to its end
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

bool RowOutcome::settled() const {
  return status == launcher::kExitDone || status == launcher::kExitNoMemory ||
         status == launcher::kExitConfig;
}

std::string status_words(const std::optional<int>& status) {
  if (!status) return "not run";
  switch (*status) {
    case launcher::kExitDone: return "done";
    case launcher::kExitNoMemory: return "out of memory";
    case launcher::kExitConfig: return "wrong config";
    default: break;
  }
  launcher::WorkerExit exit;
  exit.exit_code = *status;
  return launcher::cause_text(exit);
}

void add_figures(const RunLog& log, RowOutcome& outcome) {
  std::vector<double> times, first_times;
  double tokens = 0;
  for (size_t i = 0; i < log.steps.size(); ++i) {
    const StepRecord& step = log.steps[i];
    const bool warm = i > 0 && log.steps[i - 1].generation == step.generation;
    (warm ? times : first_times).push_back(step.step_time_s);
    tokens += step.tokens;
  }
  outcome.steps = static_cast<int64_t>(log.steps.size());
  outcome.ranks = log.steps.back().world_size;
  outcome.loss = log.steps.back().loss;
  outcome.peak_bytes = log.memory.most_bytes();
  const double step_time_s = median(times.empty() ? first_times : times);
  if (step_time_s <= 0) return;
  outcome.step_time_s = step_time_s;
  outcome.tokens_per_s = tokens / static_cast<double>(outcome.steps) / step_time_s;
  // The run's own MFU is at its mean tokens/s, with the steps that warm up.
  if (log.mfu_pct && log.tokens_per_s && *log.tokens_per_s > 0)
    outcome.mfu_pct = *log.mfu_pct * *outcome.tokens_per_s / *log.tokens_per_s;
}

Result<RowOutcome> read_row(FileSystem& file_system, const std::filesystem::path& folder) {
  RowOutcome outcome;
  LOCKSTEP_TRY(outcome.status, read_exit_status(file_system, folder / kStatusFile));
  if (!outcome.status) return outcome;
  if (*outcome.status != launcher::kExitDone) {
    const auto said = read_file(file_system, folder / "console.log");
    outcome.why = said ? launcher::last_error(said.value()) : "";
    return outcome;
  }
  LOCKSTEP_TRY(const RunLog log, read_run_log(file_system, folder));
  add_figures(log, outcome);
  return outcome;
}

Result<void> write_exit_status(FileSystem& file_system, const std::filesystem::path& folder,
                               int status) {
  return publish_file(file_system, folder / kStatusFile, text(status, "\n"));
}

}  // namespace lockstep::cli
