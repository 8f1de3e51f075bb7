// What a sweep found: a table for people, JSON and CSV for programs, and curves. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/compare/loss_plot.h"
#include "cli/sweep/sweep_row.h"
#include "cli/sweep/sweep_words.h"

namespace lockstep::cli {

struct SweepResults {
  std::vector<SweepAxis> axes;
  std::vector<SweepRow> rows;
  std::vector<RowOutcome> outcomes;  // of each row
};

// A row a line: its values, step time, tokens/s, scaling (tokens/s of a rank over those of a rank
// of the first row that was done), MFU, peak memory, loss, how it ended. Then, of the rows that
// failed otherwise than for want of memory, why.
std::string sweep_table(const SweepResults& results);
// {"rows": [{"name", "values", "status", "exit", "steps", "step_time_s", …}]}; null where a row has
// no figure.
std::string sweep_json(const SweepResults& results);
// The same, a row a line, under a line of names (RFC 4180).
std::string sweep_csv(const SweepResults& results);

enum class SweepFigure { kTokensPerS, kPeakMemory };
// Over the first key whose values are all numbers, two or more; a curve for each combination of the
// other keys' values. Nothing where there is no such key, or no row was done.
std::optional<LossPlot> sweep_plot(const SweepResults& results, SweepFigure figure);

}  // namespace lockstep::cli
