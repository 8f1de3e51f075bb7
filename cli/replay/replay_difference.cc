#include "cli/replay/replay_difference.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

std::optional<std::pair<int64_t, ReplayedStep>> step_of(const std::string& line) try {
  const json j = parse_json(line);
  ReplayedStep step{j.at("loss_hex"), j.at("grad_norm_hex"), {}, {}};
  if (j.contains("digests")) {
    step.weights = j["digests"].at("weights").get<std::vector<std::string>>();
    step.gradients = j["digests"].at("gradients").get<std::vector<std::string>>();
  }
  return std::pair(j.at("step").get<int64_t>(), std::move(step));
} catch (const json::exception&) {
  return std::nullopt;
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

std::string what_differs(int64_t step, int64_t from, const ReplayedStep& a, const ReplayedStep& b,
                         const std::vector<std::string>& units) {
  const bool digests = a.weights.size() == units.size() && b.weights.size() == units.size();
  const std::string values =
      text("loss ", a.loss, " was logged and ", b.loss, " computed now, gradient norm ",
           a.grad_norm, " and ", b.grad_norm);
  if (!digests)
    return text("step ", step, " differs: ", values,
                "; one of the two has no digests of its units, so that no unit is named");
  const auto weights = differing(a.weights, b.weights, units);
  const auto gradients = differing(a.gradients, b.gradients, units);
  if (!weights.empty() && step == from)
    return text("step ", step, ": the weights of ", listed(weights, units.size()),
                " differ before the first update: the run went on from other weights than its "
                "checkpoint has");
  if (!weights.empty())
    return text("step ", step, ": the weights of ", listed(weights, units.size()),
                " differ, and step ", step - 1,
                " had equal weights and gradients: the update of step ", step - 1,
                " went wrong, or what the optimizer keeps of these units, or their weights "
                "changed in memory since");
  if (!gradients.empty())
    return text("step ", step, ": the gradients of ", listed(gradients, units.size()),
                " differ, and all weights are equal: step ", step,
                " was computed or exchanged wrongly, or had other data; ", values);
  return text("step ", step, " differs, with equal weights and gradients: ", values);
}

}  // namespace

Result<ReplayedRun> read_replayed(FileSystem& file_system, const std::filesystem::path& run) {
  const auto args_path = run / "run_args.json";
  LOCKSTEP_TRY(const std::string args, read_file(file_system, args_path));
  ReplayedRun read;
  try {
    read.units = parse_json(args).value("trained_units", std::vector<std::string>());
  } catch (const json::exception& e) {
    return Error{Code::kCorrupt, text(args_path.string(), ": ", e.what())};
  }
  LOCKSTEP_TRY(const std::string lines, read_file(file_system, run / "metrics.jsonl"));
  for (const std::string& line : split(lines, '\n'))
    if (auto step = step_of(line))
      read.steps.insert_or_assign(step->first, std::move(step->second));
  return read;
}

Result<std::optional<std::string>> first_difference(const ReplayedRun& logged,
                                                    const ReplayedRun& replayed, int64_t from,
                                                    int64_t to) {
  for (int64_t step = from; step <= to; ++step) {
    const auto a = logged.steps.find(step), b = replayed.steps.find(step);
    if (a == logged.steps.end() || b == replayed.steps.end())
      return Error{Code::kConfig, text(a == logged.steps.end() ? "the run" : "the replay",
                                       " has no line for step ", step, " in its metrics.jsonl")};
    const bool both = !a->second.weights.empty() && !b->second.weights.empty();
    const bool equal =
        both ? a->second == b->second
             : a->second.loss == b->second.loss && a->second.grad_norm == b->second.grad_norm;
    if (!equal) return std::optional(what_differs(step, from, a->second, b->second, logged.units));
  }
  return std::optional<std::string>();
}

}  // namespace lockstep::cli
