// What two runs say of the same steps, to the last bit: where they part first.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/compare/run_log.h"

namespace lockstep::cli {

using Steps = std::map<int64_t, StepRecord>;

// What is compared: steps `from` to `to`. Those from `begun` on were computed again before and are
// equal.
struct StepRange {
  int64_t begun = 1, from = 1, to = 1;
};

// The first step that differs, in words for a person; nothing where all are equal. `units`: names,
// in the order of the digests. Errors: kConfig: one of the runs has no line for a step.
Result<std::optional<std::string>> first_difference(const Steps& logged, const Steps& replayed,
                                                    const std::vector<std::string>& units,
                                                    const StepRange& range);

}  // namespace lockstep::cli
