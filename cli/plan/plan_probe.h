// Runs two steps of a plan's config for real, on random tokens, and says what they took.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "layout/memory_walk.h"

namespace lockstep::cli {

struct Probe {
  int64_t predicted_bytes = 0;  // of rank 0 of the run that was made, on one node
  int64_t peak_bytes = 0;       // of rank 0's tensor allocator
  int64_t rss_bytes = 0;        // of rank 0's process, all of it
  double seconds = 0;
};
// `arguments` are those of the config, for `lockstep train`. In a folder of its own, without
// checkpoints and validation; what still runs after `limit_s` is killed. Errors: kConfig, kIo,
// kTimeout; kBug with the run's last words.
Result<Probe> probe(const Config& config, const layout::ModelSpec& spec,
                    std::vector<std::string> arguments, const layout::Ranks& ranks, double limit_s);

}  // namespace lockstep::cli
