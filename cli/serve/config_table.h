// The configs of several runs side by side, and where they differ. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace lockstep::cli {

struct ConfigRow {
  std::string key;                  // "training.steps"
  std::vector<std::string> values;  // by run; "" where a run does not have it
  bool differs = false;
};

// Of each run its run_args.json, or null where it has none: the keys of its config in the order of
// the first run that has them, and what the run was besides (parameters, world_size, transport). A
// run without run_args.json makes no row differ.
std::vector<ConfigRow> config_table(const std::vector<nlohmann::ordered_json>& run_args);

}  // namespace lockstep::cli
