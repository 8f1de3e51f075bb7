#include "launcher/health/health_rules.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::launcher::health {

Health HealthRules::note(const std::vector<Counter>& counters, int64_t now_ns) {
  for (const Counter& counter : counters) note_one(counter, now_ns);
  Health health;
  health.failed = failed_;
  std::vector<std::string> warnings;
  for (auto& [what, known] : known_) {
    if (!known.failed && now_ns - known.seen_ns >= kLastsNs) known.line.clear();  // [H3]
    if (!known.line.empty()) (known.failed ? health.lines : warnings).push_back(known.line);
  }
  health.lines.insert(health.lines.end(), warnings.begin(), warnings.end());
  if (health.lines.size() > kMostLines) {
    health.lines.resize(kMostLines - 1);
    health.lines.push_back("there are more findings; see the system log of the node");
  }
  return health;
}

void HealthRules::note_one(const Counter& counter, int64_t now_ns) {
  const auto [found, first] = known_.try_emplace(counter.what);
  Known& known = found->second;
  const int64_t before = first && counter.kind == Kind::kCount ? counter.value : known.value;
  const int64_t growth = std::max<int64_t>(0, counter.value - before);
  known.value = counter.value;
  const bool lasts = counter.kind == Kind::kState && counter.value > 0;
  if (growth == 0 && !lasts) return;
  known.grown = std::min(known.grown, INT64_MAX - growth) + growth;
  known.seen_ns = now_ns;
  const bool fails = counter.meaning == Meaning::kFailed && growth > 0 && !first;  // [H1], [H2]
  const bool again = now_ns - known.said_ns >= kLastsNs && known.grown > known.said_grown;
  if (known.line.empty() || again || (fails && !known.failed)) {  // [H4]
    known.said_ns = now_ns;
    known.said_grown = known.grown;
    known.line = counter.kind == Kind::kCount ? text(counter.what, ": ", known.grown, " more")
                                              : counter.what;
    if (first) known.line += " (from before this agent started)";
  }
  if (!fails) return;
  known.failed = true;
  if (failed_.empty()) failed_ = known.line;
}

}  // namespace lockstep::launcher::health
