#include "cli/replay/replay_difference.h"

#include <algorithm>

#include "base/text.h"
#include "cli/compare/difference.h"

namespace lockstep::cli {
namespace {

std::string norm_text(const StepRecord& record) {
  return record.grad_norm ? hex_float(*record.grad_norm) : "unknown";
}

// Names of the units whose digests differ.
std::vector<std::string> differing(const std::vector<std::string>& a,
                                   const std::vector<std::string>& b,
                                   const std::vector<std::string>& units) {
  std::vector<std::string> names;
  for (size_t i = 0; i < units.size(); ++i)
    if (a[i] != b[i]) names.push_back(units[i]);
  return names;
}

std::string listed(const std::vector<std::string>& names, size_t of) {
  constexpr size_t kMost = 4;
  std::string out = text(names.size(), " of ", of, " units (");
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return out + (names.size() > kMost ? ", …)" : ")");
}

std::string what_differs(int64_t step, int64_t from, const StepRecord& a, const StepRecord& b,
                         const std::vector<std::string>& units) {
  const bool digests = a.weights.size() == units.size() && b.weights.size() == units.size();
  const std::string values =
      text("loss ", hex_float(a.loss), " was logged and ", hex_float(b.loss),
           " computed now, gradient norm ", norm_text(a), " and ", norm_text(b));
  if (!digests)
    return text("step ", step, " differs: ", values,
                "; one of the two has no digests of its units, so no unit can be named");
  const auto weights = differing(a.weights, b.weights, units);
  const auto gradients = differing(a.gradients, b.gradients, units);
  if (!weights.empty() && step == from)
    return text("step ", step, ": the weights of ", listed(weights, units.size()),
                " differ before the first update: the run continued from other weights than its "
                "checkpoint has");
  if (!weights.empty())
    return text(
        "step ", step, ": the weights of ", listed(weights, units.size()), " differ, and step ",
        step - 1, " had equal weights and gradients: the update of step ", step - 1,
        " was wrong, or the weights or optimizer state of these units changed in memory since");
  if (!gradients.empty())
    return text("step ", step, ": the gradients of ", listed(gradients, units.size()),
                " differ, and all weights are equal: step ", step,
                " was computed or exchanged wrongly, or had other data; ", values);
  return text("step ", step, " differs, with equal weights and gradients: ", values);
}

}  // namespace

Result<std::optional<std::string>> first_difference(const Steps& logged, const Steps& replayed,
                                                    const std::vector<std::string>& units,
                                                    const StepRange& range) {
  for (int64_t step = range.from; step <= range.to; ++step) {
    const auto a = logged.find(step), b = replayed.find(step);
    if (a == logged.end() || b == replayed.end())
      return Error{Code::kConfig, text(a == logged.end() ? "the run" : "the replay",
                                       " has no line for step ", step, " in its metrics.jsonl")};
    const StepRecord &then = a->second, &now = b->second;
    const bool one_has_none = then.weights.empty() || now.weights.empty();
    const bool same_digests =
        one_has_none || (then.weights == now.weights && then.gradients == now.gradients);
    if (!identical(then, now) || !same_digests)
      return std::optional(what_differs(step, range.begun, then, now, units));
  }
  return std::optional<std::string>();
}

}  // namespace lockstep::cli
