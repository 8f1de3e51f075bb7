// The compressed lists in Slurm's environment variables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::launcher {

inline constexpr size_t kMaxHosts = 65536;

// "node[1-3,07],gpu05" -> node1 node2 node3 node07 gpu05. Several brackets in a name multiply; the
// width of a range's first number is kept. Format: slurm.conf(5), "hostlist expressions".
// Errors: kConfig, for anything else and for more than kMaxHosts names.
Result<std::vector<std::string>> expand_hostlist(std::string_view list);

// SLURM_STEP_TASKS_PER_NODE: "2(x3),1" -> 2 2 2 1. Errors: kConfig.
Result<std::vector<int64_t>> expand_tasks_per_node(std::string_view list);

}  // namespace lockstep::launcher
