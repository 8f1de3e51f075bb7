#include "cli/compare/compare_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <ostream>

#include "base/text.h"
#include "cli/compare/compare_report.h"

namespace lockstep::cli {
namespace {

constexpr int kExitDifferent = 1;
constexpr int kExitInput = 64;
constexpr int kExitOutput = 74;  // EX_IOERR
constexpr int64_t kMaxSmoothSteps = 1'000'000;

Result<std::vector<RunLog>> read_all(const CompareOptions& options, FileSystem& file_system) {
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

void add_compare_options(CLI::App& app, CompareOptions& options) {
  app.add_option("runs", options.runs,
                 "Run folders, metrics.jsonl files, or console logs of torchtitan, "
                 "Megatron-LM, llm.c, "
                 "nanoGPT, Hugging Face Trainer; the first is the reference")
      ->required()
      ->expected(1, -1);
  app.add_option("--plot", options.plot, "Draw the loss curves into this SVG file");
  const std::map<std::string, bool> axes{{"step", false}, {"tokens", true}};
  app.add_option("--x", options.curves.over_tokens, "The plot's x axis: step or tokens (step)")
      ->transform(CLI::Transformer(axes))
      ->type_name("AXIS");
  app.add_option("--smooth", options.curves.smooth_steps,
                 "The plot shows means of this many steps (1)")
      ->check(CLI::Range(int64_t{1}, kMaxSmoothSteps))
      ->type_name("STEPS");
  app.add_flag("--json", options.json, "Print JSON instead of the table");
  app.add_flag("--require-identical", options.require_identical,
               "Exit 1 unless every common step is bit-identical and every redone step repeated "
               "its loss");
  app.footer(
      "Examples:\n"
      "  lockstep compare results/training/a results/training/b --plot loss.svg\n"
      "  lockstep compare results/training/a torchtitan.log\n"
      "  lockstep compare results/training/a --plot loss.svg --x tokens --smooth 20\n"
      "  lockstep compare --require-identical --json golden/metrics.jsonl results/training/b");
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
  const auto drawn = check_curves(logs.value(), options.curves);
  if (!options.plot.empty() && !drawn.ok()) return refuse(drawn.error());
  const auto report = options.json ? report_json : report_text;
  out << report(logs.value(), differences.value());
  if (!options.plot.empty()) {
    const LossPlot plot = loss_plot(logs.value(), differences.value(), options.curves);
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
