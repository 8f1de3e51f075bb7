// A RunStatus for Prometheus.
#pragma once

#include <string>

#include "cli/status/run_status.h"

namespace lockstep::cli {

// In the text format, version 0.0.4; names begin with lockstep_. A number that nobody knows has no
// line.
std::string status_metrics(const RunStatus& status);

}  // namespace lockstep::cli
