// `lockstep plan`: what a run takes of memory, and what fits, without running it.
#pragma once

#include "base/result.h"
#include "config/config.h"
#include "layout/model_spec.h"

namespace lockstep::cli {

// The exit status.
int plan_command(int argc, char** argv);

// The config's model. The data set is asked for its vocabulary only where nothing else says it.
// Errors: kConfig, and those of the data.
Result<layout::ModelSpec> model_of(const Config& config);

}  // namespace lockstep::cli
