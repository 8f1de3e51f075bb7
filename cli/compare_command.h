// `lockstep compare A B …`: are these the same losses? The first run is the reference.
//
// Prints a table (or JSON), and draws the loss curves. Reads run folders and console logs of other
// trainers (run_log.h). Exit status: 0 comparable · 1 a bit differs, with --require-identical ·
// 64 what was given is not a run, or no step is in both · 74 the plot cannot be written.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <vector>

#include "base/file_system.h"
#include "cli/loss_plot.h"
#include "cli/run_log.h"

namespace CLI {
class App;
}

namespace lockstep::cli {

struct CompareOptions {
  std::vector<std::filesystem::path> runs;  // two or more
  std::filesystem::path plot;               // empty: none
  bool json = false;
  bool require_identical = false;
};

// Adds the sub-command, its flags and its examples to `app`. Parsing fills `options`, which must
// outlive it.
CLI::App* add_compare_command(CLI::App& app, CompareOptions& options);

// Runs it. Returns the exit status.
int run_compare(const CompareOptions& options, FileSystem& file_system, std::ostream& out,
                std::ostream& err);

// One run beside the reference, over the steps that both logged.
struct Difference {
  int64_t common_steps = 0, first_step = 0, last_step = 0;
  double max_loss = 0,
         max_relative = 0;  // nan when one of the losses is not a number, the other is
  int64_t max_loss_step = 0;
  bool exact = false;           // both sides are exact, so that "identical" means bits
  int64_t identical_steps = 0;  // loss and, where both have it, gradient norm
  std::optional<int64_t> first_different_step;

  bool identical() const { return identical_steps == common_steps; }
};
Difference difference(const RunLog& reference, const RunLog& run);

// The picture of `logs`: the first curve is the reference; kills and world sizes are those of the
// first run that was restarted.
LossPlot loss_plot(const std::vector<RunLog>& logs, const std::vector<Difference>& differences);

}  // namespace lockstep::cli
