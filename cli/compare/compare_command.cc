#include "cli/compare/compare_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

#include "base/text.h"
#include "cli/compare/compare_report.h"

namespace lockstep::cli {
namespace {

constexpr int kExitDifferent = 1;
constexpr int kExitInput = 64;
constexpr int kExitOutput = 74;  // EX_IOERR
constexpr size_t kMaxMarkLabels = 6;

Result<std::vector<RunLog>> read_all(const CompareOptions& options, FileSystem& file_system) {
  if (options.runs.size() < 2) {
    return Error{Code::kConfig, "compare needs two runs or more: lockstep compare REFERENCE RUN"};
  }
  std::vector<RunLog> logs;
  for (const auto& path : options.runs) {
    LOCKSTEP_TRY(RunLog log, read_run_log(file_system, path));
    logs.push_back(std::move(log));
  }
  // Two folders of one name are told apart by their paths.
  std::map<std::string, int> uses;
  for (const RunLog& log : logs) ++uses[log.name];
  for (RunLog& log : logs) {
    if (uses[log.name] > 1) log.name = log.source.lexically_normal().string();
  }
  return logs;
}

Result<std::vector<Difference>> all_differences(const std::vector<RunLog>& logs) {
  std::vector<Difference> differences;
  for (size_t i = 1; i < logs.size(); ++i) {
    differences.push_back(difference(logs[0], logs[i]));
    if (differences.back().common_steps > 0) continue;
    const auto span = [](const RunLog& log) {
      return text(log.source.string(), " (steps ", log.steps.front().step, " to ",
                  log.steps.back().step, ")");
    };
    return Error{Code::kConfig, text("no step is in both ", span(logs[0]), " and ", span(logs[i]))};
  }
  return differences;
}

PlotCurve curve_of(const RunLog& log) {
  PlotCurve curve;
  curve.label = log.name;
  if (log.restarts > 0) {
    curve.label += text(" (", counted(log.restarts, "restart"), ")");
  }
  for (const StepRecord& record : log.steps) {
    curve.points.push_back({static_cast<double>(record.step), record.loss});
  }
  return curve;
}

std::string ranks_text(int64_t world_size) {
  return world_size <= 0 ? "" : counted(world_size, "rank");
}

// A generation ends at its last logged step; the next one redoes from its checkpoint.
void add_generations(const RunLog& log, LossPlot& plot) {
  double from = static_cast<double>(log.steps.front().step);
  for (size_t i = 0; i < log.generations.size(); ++i) {
    const Generation& generation = log.generations[i];
    const double to = std::max(from, static_cast<double>(generation.last_step));
    plot.bands.push_back({from, to, ranks_text(generation.world_size)});
    if (i + 1 < log.generations.size()) {
      const std::string why = generation.ended_by.empty() ? "restarted" : generation.ended_by;
      plot.marks.push_back({to, plot.marks.size() < kMaxMarkLabels ? why : ""});
    }
    from = to;
  }
}

int write_plot(const CompareOptions& options, FileSystem& file_system, const LossPlot& plot,
               std::ostream& out, std::ostream& err) {
  if (auto written = publish_file(file_system, options.plot, loss_plot_svg(plot)); !written.ok()) {
    err << "lockstep compare: " << written.error().message << "\n";
    return kExitOutput;
  }
  if (!options.json) out << "plot: " << options.plot.string() << "\n";
  return 0;
}

}  // namespace

LossPlot loss_plot(const std::vector<RunLog>& logs, const std::vector<Difference>& differences) {
  LossPlot plot;
  plot.title = "Training loss";
  for (size_t i = 0; i < differences.size(); ++i) {
    const Difference& each = differences[i];
    plot.subtitle +=
        text(i == 0 ? "" : " · ", differences.size() > 1 ? logs[i + 1].name + ": " : "",
             grouped(each.identical_steps), " of ", grouped(each.common_steps),
             each.exact ? " steps bit-identical" : " printed losses equal", ", max |difference| ",
             each.max_loss);
  }
  for (const RunLog& log : logs) plot.curves.push_back(curve_of(log));
  const auto restarted = std::find_if(logs.begin(), logs.end(),
                                      [](const RunLog& log) { return log.generations.size() > 1; });
  if (restarted != logs.end()) add_generations(*restarted, plot);
  return plot;
}

CLI::App* add_compare_command(CLI::App& app, CompareOptions& options) {
  CLI::App* command =
      app.add_subcommand("compare", "Compare the losses of two runs or more, bit by bit");
  command
      ->add_option("runs", options.runs,
                   "Run folders, metrics.jsonl files, or console logs of torchtitan, "
                   "Megatron-LM, llm.c, "
                   "nanoGPT, Hugging Face Trainer; the first is the reference")
      ->required()
      ->expected(2, -1);
  command->add_option("--plot", options.plot, "Draw the loss curves into this SVG file");
  command->add_flag("--json", options.json, "Print JSON instead of the table");
  command->add_flag(
      "--require-identical", options.require_identical,
      "Exit 1 unless every common step is bit-identical and every redone step repeated "
      "its loss");
  command->footer(
      "Examples:\n"
      "  lockstep compare results/training/a results/training/b --plot loss.svg\n"
      "  lockstep compare results/training/a torchtitan.log\n"
      "  lockstep compare --require-identical --json golden/metrics.jsonl results/training/b");
  return command;
}

int run_compare(const CompareOptions& options, FileSystem& file_system, std::ostream& out,
                std::ostream& err) {
  const auto refuse = [&err](const Error& error) {
    err << "lockstep compare: " << error.message << "\n";
    return kExitInput;
  };
  const auto logs = read_all(options, file_system);
  if (!logs.ok()) return refuse(logs.error());
  const auto differences = all_differences(logs.value());
  if (!differences.ok()) return refuse(differences.error());
  const auto report = options.json ? report_json : report_text;
  out << report(logs.value(), differences.value());
  if (!options.plot.empty()) {
    const LossPlot plot = loss_plot(logs.value(), differences.value());
    if (const int status = write_plot(options, file_system, plot, out, err); status != 0) {
      return status;
    }
  }
  const bool same =
      std::all_of(differences.value().begin(), differences.value().end(),
                  [](const Difference& each) { return each.exact && each.identical(); }) &&
      std::all_of(logs.value().begin(), logs.value().end(),
                  [](const RunLog& log) { return log.mismatches.empty(); });
  return options.require_identical && !same ? kExitDifferent : 0;
}

}  // namespace lockstep::cli
