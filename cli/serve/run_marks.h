// What happened to a run, as marks on its curves: starts of generations, and checkpoints. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/serve/run_series.h"
#include "cli/shared/event_list.h"

namespace lockstep::cli {

enum class MarkKind {
  kRestart,     // a failure ended the generation before
  kResume,      // somebody started the run again, or its size changed
  kCheckpoint,  // is committed, and was kept
};
const char* name_of(MarkKind kind);

struct Mark {
  MarkKind kind = MarkKind::kRestart;
  int64_t step = 0;
  std::string words;  // "generation 2, world size 3, after rank 1 killed by SIGKILL"
  bool operator==(const Mark&) const = default;
};

// By step. The first start of a run is no mark.
std::vector<Mark> marks_of(const std::vector<GenerationStart>& starts,
                           const std::vector<nlohmann::json>& events,
                           const std::vector<int64_t>& checkpoints);

}  // namespace lockstep::cli
