// Judges facts: one line for each thing that a run needs of a node, with what to do. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/doctor_facts.h"
#include "cli/doctor/doctor_meeting.h"
#include "config/config.h"
#include "layout/memory_plan.h"

namespace lockstep::cli {

enum class Level { kOk, kWarn, kBad };
const char* level_name(Level level);  // "ok" | "warn" | "bad"

struct Verdict {
  Level level = Level::kOk;
  std::string what;    // "disk"
  std::string found;   // "412.0 MB/s in /scratch, fsync 0.03 s"
  std::string advice;  // what to do; "" when ok
};

std::string rate_text(double bytes_per_s);  // "412.0 MB/s"

// Of one node, in a fixed order.
std::vector<Verdict> judge(const NodeFacts& facts, const NodeNeeds& needs);

// What only shows when nodes are looked at side by side. `nodes` were started.
std::vector<Verdict> judge_together(const std::vector<MetNode>& met, int64_t nodes);

// What `config` asks of a node that holds `ranks_here` of the ranks; on GPUs tensors are not in
// host memory. Requires: a validated config; `spec` is its model.
NodeNeeds needs_of(const Config& config, const layout::ModelSpec& spec, const layout::Ranks& ranks,
                   int64_t ranks_here);

}  // namespace lockstep::cli
