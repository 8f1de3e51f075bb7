// Which curves show logged runs: their losses, validation losses, and where they were restarted.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "cli/compare/difference.h"
#include "cli/compare/loss_plot.h"
#include "cli/compare/run_log.h"

namespace lockstep::cli {

struct CurveOptions {
  bool over_tokens = false;  // x is the tokens that were learnt so far, not the step
  int64_t smooth_steps = 1;  // a point is the mean loss of its step and of those before, so many
};

// Errors: kConfig: a run does not say its tokens, and they are asked for.
Result<void> check_curves(const std::vector<RunLog>& logs, const CurveOptions& options);

// The picture of `logs`: the first curve is the reference where there are several; kills and world
// sizes are those of the first run that was restarted. `differences[i]` is between logs[0] and
// logs[i + 1]. Requires: check_curves.
LossPlot loss_plot(const std::vector<RunLog>& logs, const std::vector<Difference>& differences,
                   const CurveOptions& options);

}  // namespace lockstep::cli
