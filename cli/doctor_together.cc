// Verdicts on several nodes side by side: one that is slow, old or wrong in time holds up, or
// spoils, all others.
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/text.h"
#include "cli/doctor_verdicts.h"

namespace lockstep::cli {
namespace {

constexpr double kSlowShare = 0.8, kVerySlowShare = 0.5;  // of the median
constexpr double kSkew_s = 0.5, kVagueSkew_s = 5;

Verdict judge_presence(const std::vector<MetNode>& met, int64_t nodes) {
  constexpr const char* kWhat = "nodes";
  std::set<int64_t> ranks;
  std::map<std::string, int> hosts;
  for (const MetNode& node : met) {
    ranks.insert(node.rank);
    ++hosts[node.facts.node];
  }
  std::string missing;
  for (int64_t rank = 0; rank < nodes; ++rank)
    if (!ranks.contains(rank)) missing += text(missing.empty() ? "" : ", ", rank);
  const std::string found = text(met.size(), " of ", nodes, " nodes came to the shared folder");
  if (!missing.empty())
    return {Level::kBad, kWhat, text(found, "; not task ", missing),
            "is the run's folder the same on all nodes? Look at those tasks' output"};
  for (const auto& [host, count] : hosts)
    if (count > 1)
      return {Level::kWarn, kWhat, text(found, "; ", count, " of them are ", host),
              "one task a node (srun --ntasks-per-node=1): they disturbed each other's figures"};
  return {Level::kOk, kWhat, found, ""};
}

Verdict judge_skew(const std::vector<MetNode>& met) {
  constexpr const char* kWhat = "clocks";
  double largest = 0, vaguest = 0;
  std::string where;
  for (const MetNode& node : met) {
    if (!node.skew) continue;
    vaguest = std::max(vaguest, node.skew->error_s);
    // What is certain of it.
    const double apart = std::max(0.0, std::abs(node.skew->ahead_s) - node.skew->error_s);
    if (apart <= largest && !where.empty()) continue;
    largest = apart;
    where = node.facts.node;
  }
  const std::string found =
      text("apart by ", fixed(largest, 3), " s at least, seen with an error of ",
           fixed(vaguest, 3), " s");
  if (largest > kSkew_s)
    return {Level::kWarn, kWhat, text(found, " (", where, ")"),
            "logs and events will not fit together: let chrony or ntpd set the clocks"};
  if (vaguest > kVagueSkew_s)
    return {Level::kWarn, kWhat, found, "the shared folder is slow to show new files"};
  return {Level::kOk, kWhat, found, ""};
}

// Bits follow from the software and the device.
Verdict judge_sameness(const std::vector<MetNode>& met) {
  constexpr const char* kWhat = "sameness";
  const std::vector<std::pair<const char*, std::function<std::string(const NodeFacts&)>>> kinds = {
      {"lockstep", [](const NodeFacts& f) { return f.versions.lockstep; }},
      {"LibTorch", [](const NodeFacts& f) { return f.compute.torch; }},
      {"NCCL", [](const NodeFacts& f) { return f.compute.nccl; }},
      {"device", [](const NodeFacts& f) { return f.compute.device; }},
      {"HDF5", [](const NodeFacts& f) { return f.versions.hdf5; }}};
  for (const auto& [kind, value] : kinds)
    for (const MetNode& node : met)
      if (value(node.facts) != value(met.front().facts))
        return {Level::kWarn, kWhat,
                text(kind, ": ", value(met.front().facts), " on ", met.front().facts.node, ", ",
                     value(node.facts), " on ", node.facts.node),
                "the loss curve may depend on which node computes what"};
  return {Level::kOk, kWhat, "same libraries and devices", ""};
}

// The node that is furthest below the median, of each figure.
std::vector<Verdict> judge_speeds(const std::vector<MetNode>& met) {
  const std::vector<std::pair<const char*, std::function<double(const NodeFacts&)>>> kinds = {
      {"gemm", [](const NodeFacts& f) { return f.compute.fp32_tflops; }},
      {"memory", [](const NodeFacts& f) { return f.memory.copy_bytes_per_s; }},
      {"disk", [](const NodeFacts& f) { return f.disk.bytes_per_s(); }}};
  std::vector<Verdict> verdicts;
  for (const auto& [kind, value] : kinds) {
    std::vector<std::pair<double, std::string>> sorted;
    for (const MetNode& node : met)
      if (const double figure = value(node.facts); figure > 0)
        sorted.emplace_back(figure, node.facts.node);
    if (sorted.size() < 2) continue;
    std::sort(sorted.begin(), sorted.end());
    // Of two nodes the faster one is the measure.
    const double share = sorted.front().first / sorted[sorted.size() / 2].first;
    const std::string found = text("slowest: ", sorted.front().second, " at ",
                                   fixed(100 * share, 0), " % of the median");
    const Level level = share < kVerySlowShare  ? Level::kBad
                        : share < kSlowShare    ? Level::kWarn
                                                : Level::kOk;
    verdicts.push_back({level, kind, found,
                        level == Level::kOk ? "" : "all ranks wait for it: exclude that node, or "
                                                   "see what else runs there"});
  }
  return verdicts;
}

}  // namespace

std::vector<Verdict> judge_together(const std::vector<MetNode>& met, int64_t nodes) {
  std::vector<Verdict> verdicts{judge_presence(met, nodes), judge_skew(met), judge_sameness(met)};
  for (Verdict& speed : judge_speeds(met)) verdicts.push_back(std::move(speed));
  return verdicts;
}

}  // namespace lockstep::cli
