// What two runs say of the same steps, to the last bit: where they part first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/compare/run_log.h"

namespace lockstep::cli {

// Null: there is no line for the step.
const StepRecord* find_step(const RunLog& log, int64_t step);

// The first step in [from, to] that differs, in words for a person; nothing where all are equal.
// `units`: names, in the order of the digests. Errors: kConfig: one of the runs has no line for a
// step.
Result<std::optional<std::string>> first_difference(const RunLog& logged, const RunLog& replayed,
                                                    const std::vector<std::string>& units,
                                                    int64_t from, int64_t to);

}  // namespace lockstep::cli
