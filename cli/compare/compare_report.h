// How a comparison is put into words: a table for people, JSON for programs.
#pragma once

#include <string>
#include <vector>

#include "cli/compare/difference.h"

namespace lockstep::cli {

// `differences[i]` is between logs[0] and logs[i + 1].
std::string report_text(const std::vector<RunLog>& logs,
                        const std::vector<Difference>& differences);
std::string report_json(const std::vector<RunLog>& logs,
                        const std::vector<Difference>& differences);

// "2 (1-40), 3 (31-80)": world sizes over the steps that they computed. "" when unknown.
std::string world_sizes_text(const RunLog& log);

}  // namespace lockstep::cli
