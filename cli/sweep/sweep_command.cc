#include "cli/sweep/sweep_command.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <iostream>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/shared/command_words.h"
#include "cli/sweep/sweep_plan.h"
#include "cli/sweep/sweep_report.h"
#include "cli/sweep/sweep_submit.h"
#include "launcher/control/incident.h"
#include "launcher/host/process.h"

namespace lockstep::cli {
namespace {

using std::filesystem::path;

constexpr int kExitRowFailed = 1;
constexpr int kSignalBase = 128;
constexpr int64_t kSweepLookMs = 1000;

constexpr const char* kSweepHelp =
    R"(lockstep sweep CONFIG.toml --over KEY=VALUE,VALUE… [--over …] [--section.key value …]

Runs each combination of the values for a few steps, one after the other, each as `lockstep launch`
does it, and prints one table: step time (the median, without the first step), tokens/s, scaling
(tokens/s of a rank over those of a rank of the first row that was done), MFU, peak memory, loss,
how it ended. A combination that runs out of memory, or that is not valid, is a row of the table and
does not end the sweep.

  --over KEY=V,V…  a key of the config, or its short name, and its values; the last --over changes
                   fastest
  --steps N        of each run (20)
  --out FOLDER     output folder (results/sweep/<CONFIG's name>): a run folder for each row, with
                   config.toml, console.log and exit_status; report.json, report.csv and, where a
                   key has numbers as values, tokens_per_s.svg and peak_memory.svg
  --report         runs nothing; prints the table of the rows so far
  --json           prints report.json in place of the table
  --submit         under Slurm: a job array, a task a row, in a batch script as `lockstep submit`
                   writes it; takes its words, --dry-run among them, and --array %N: at most N
                   tasks at a time. --report shows what they have come to

After Ctrl-C or a crash, the same command continues with the rows that are not done. Rows that ended
in another way than done, out of memory or wrong config are run again. OUT/sweep.json pins the
plan: another sweep needs another folder. Runs neither save nor validate, unless
--checkpoint.enable or --validation.freq N is given. All other words are those of `lockstep launch`.

Examples:
  lockstep sweep examples/demo.toml --over training.local_batch_size=1,2,4,8 \
      --over parallelism.strategy=ddp,full_shard --nproc-per-node 2
  lockstep sweep run.toml --over activation_checkpoint.mode=none,full \
      --over model.fused_attention=true,false
  lockstep sweep run.toml --over nproc_per_node=1,2,4,8 --training.slots 8 --out results/scaling
  lockstep sweep run.toml --over optimizer.lr=1e-4,3e-4,1e-3 --steps 500 --out results/lr
  lockstep sweep run.toml --over optimizer.lr=1e-4,3e-4,1e-3 --submit --gpus 4 --time 0:30:00
  lockstep compare results/sweep/demo/*/                   # losses and memory by stage of the rows

Exit status: 0 every row is settled, 1 a row failed, 64 wrong input, 75 stopped: run it again.
)";

Result<SweepResults> results_of(FileSystem& file_system, const SweepPlan& plan) {
  SweepResults results;
  results.axes = plan.words.axes;
  for (const PlannedRow& each : plan.rows) {
    LOCKSTEP_TRY(RowOutcome outcome, read_row(file_system, plan.out / each.row.name));
    results.rows.push_back(each.row);
    results.outcomes.push_back(std::move(outcome));
  }
  return results;
}

Result<void> write_reports(FileSystem& file_system, const path& out, const SweepResults& results) {
  LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, out / "report.json", sweep_json(results)));
  LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, out / "report.csv", sweep_csv(results)));
  for (const auto& [figure, name] : {std::pair(SweepFigure::kTokensPerS, "tokens_per_s.svg"),
                                     std::pair(SweepFigure::kPeakMemory, "peak_memory.svg")})
    if (const auto plot = sweep_plot(results, figure))
      LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, out / name, loss_plot_svg(*plot)));
  return {};
}

// Waits for the end of `run`; what asks us to stop asks it, and sets `stopped`.
int end_of(launcher::WorkerProcess& run, launcher::StopSignals& signals, bool& stopped) {
  while (true) {
    if (const auto end = run.try_reap())
      return end->signal != 0 ? kSignalBase + end->signal : end->exit_code;
    launcher::wait_readable({run.pidfd(), signals.descriptor()}, kSweepLookMs);
    for (const int signal : signals.take()) {
      stopped = true;
      run.signal(signal == SIGINT ? SIGINT : SIGTERM);  // it ignores USR1 and USR2
    }
  }
}

// Runs the row in `folder`. Nothing: it was stopped before its end.
Result<std::optional<int>> run_row(FileSystem& file_system, const path& folder,
                                   launcher::StopSignals& signals) {
  LOCKSTEP_TRY(auto run, launcher::WorkerProcess::spawn(
                             {.program = launcher::running_executable(),
                              .arguments = {"launch", (folder / "config.toml").string()},
                              .environment = own_environment(),
                              .stderr_path = folder / "console.log",
                              .stdout_path = folder / "console.log"}));
  bool stopped = false;
  const int status = end_of(run, signals, stopped);
  if (stopped && status != launcher::kExitDone) return std::optional<int>();
  LOCKSTEP_RETURN_IF_ERROR(write_exit_status(file_system, folder, status));
  return std::optional<int>(status);
}

std::string row_words(const RowOutcome& outcome) {
  if (!outcome.step_time_s) return status_words(outcome.status);
  return text("a step ", fixed(*outcome.step_time_s, 4), " s, ",
              grouped(std::llround(*outcome.tokens_per_s)), " tokens/s");
}

// Runs what is not settled. False: it was stopped.
Result<bool> run_rows(FileSystem& file_system, const SweepPlan& plan) {
  launcher::StopSignals signals;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const std::string& name = plan.rows[i].row.name;
    const path folder = plan.out / name;
    const std::string head = text("[", i + 1, "/", plan.rows.size(), "] ", name, ": ");
    LOCKSTEP_TRY(RowOutcome outcome, read_row(file_system, folder));
    if (!outcome.settled()) {
      std::cerr << head << "running, see " << (folder / "console.log").string() << std::endl;
      LOCKSTEP_TRY(const auto status, run_row(file_system, folder, signals));
      if (!status) return false;
      LOCKSTEP_TRY(outcome, read_row(file_system, folder));
    }
    std::cerr << head << row_words(outcome) << std::endl;
    LOCKSTEP_TRY(const SweepResults results, results_of(file_system, plan));
    LOCKSTEP_RETURN_IF_ERROR(write_reports(file_system, plan.out, results));
    if (!signals.take().empty()) return false;
  }
  return true;
}

Result<int> sweep(const std::vector<std::string>& arguments) {
  FileSystem& file_system = posix_file_system();
  LOCKSTEP_TRY(SweepWords words, split_sweep_words(arguments));
  launcher::slurm::SubmitWords of_sbatch;
  if (words.submit) {
    LOCKSTEP_TRY(of_sbatch, launcher::slurm::split_words(words.launch));
    words.launch = std::move(of_sbatch.launch);
  }
  LOCKSTEP_TRY(const SweepPlan plan, plan_sweep(std::move(words)));
  if (!of_sbatch.dry_run) LOCKSTEP_RETURN_IF_ERROR(pin_plan(file_system, plan));
  if (plan.words.submit) return submit_sweep(file_system, plan, std::move(of_sbatch));
  bool whole = true;
  if (!plan.words.report) {
    LOCKSTEP_TRY(whole, run_rows(file_system, plan));
  }
  LOCKSTEP_TRY(const SweepResults results, results_of(file_system, plan));
  LOCKSTEP_RETURN_IF_ERROR(write_reports(file_system, plan.out, results));
  std::cout << (plan.words.json ? sweep_json(results) : sweep_table(results)) << std::flush;
  if (!whole) {
    std::cerr << "stopped; run the same command again to continue with the rows that are not done"
              << std::endl;
    return launcher::kExitResume;
  }
  if (plan.words.report) return launcher::kExitDone;
  const bool settled = std::all_of(results.outcomes.begin(), results.outcomes.end(),
                                   [](const RowOutcome& each) { return each.settled(); });
  return settled ? launcher::kExitDone : kExitRowFailed;
}

}  // namespace

int sweep_command(int argc, char** argv) {
  if (const auto end = show_help(kSweepHelp, true, argc, argv)) return *end;
  const auto done = sweep({argv + 1, argv + argc});
  if (done) return done.value();
  log_error(done.error().message);
  return exit_status(done.error().code);
}

}  // namespace lockstep::cli
