#include "cli/serve/run_marks.h"

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "cli/shared/json_fields.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

// Why generations ended: the first failure that each one logged.
std::map<int64_t, std::string> failures(const std::vector<json>& events) {
  std::map<int64_t, std::string> reasons;
  for (const json& event : events) {
    const std::string name = string_or_empty(event, "event");
    if (name != "failure_detected" && name != "node_lost") continue;
    const int64_t rank = integer_or(event, "rank", -1);
    reasons.try_emplace(
        integer_or(event, "generation", 0),
        text(rank < 0 ? "" : text("rank ", rank, " "), string_or_empty(event, "reason")));
  }
  return reasons;
}

}  // namespace

const char* name_of(MarkKind kind) {
  switch (kind) {
    case MarkKind::kRestart: return "restart";
    case MarkKind::kResume: return "resume";
    case MarkKind::kCheckpoint: return "checkpoint";
  }
  return "";
}

std::vector<Mark> marks_of(const std::vector<GenerationStart>& starts,
                           const std::vector<json>& events,
                           const std::vector<int64_t>& checkpoints) {
  std::vector<Mark> marks;
  const auto reasons = failures(events);
  for (size_t i = 1; i < starts.size(); ++i) {
    const GenerationStart& start = starts[i];
    // A generation that logged no step may have failed in between.
    const auto reason = reasons.lower_bound(starts[i - 1].generation);
    const bool failed = reason != reasons.end() && reason->first < start.generation;
    marks.push_back({failed ? MarkKind::kRestart : MarkKind::kResume, start.step,
                     text("generation ", start.generation, ", world size ", start.world_size,
                          failed ? text(", after ", reason->second) : "")});
  }
  for (const int64_t step : checkpoints) marks.push_back({MarkKind::kCheckpoint, step, ""});
  std::stable_sort(marks.begin(), marks.end(),
                   [](const Mark& a, const Mark& b) { return a.step < b.step; });
  return marks;
}

}  // namespace lockstep::cli
