// Verdicts on several nodes side by side: one that is slow, old or wrong in time holds up, or
// spoils, all others.
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/text.h"
#include "cli/doctor/doctor_verdicts.h"

namespace lockstep::cli {
namespace {

constexpr double kSlowShare = 0.8, kVerySlowShare = 0.5;  // of the median
constexpr double kSkew_s = 0.5, kVagueSkew_s = 5;
constexpr size_t kShownPairs = 3;  // of those that are not reached

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
  const std::string found =
      text(met.size(), " of ", counted(nodes, "node"), " came to the shared folder");
  if (!missing.empty())
    return {Level::kBad, kWhat, text(found, "; missing: task ", missing),
            "check that all nodes see the same run folder, and look at the output of those tasks"};
  for (const auto& [host, count] : hosts)
    if (count > 1)
      return {Level::kWarn, kWhat, text(found, "; ", count, " of them are ", host),
              "start one task a node (srun --ntasks-per-node=1); these tasks disturbed each "
              "other's measurements"};
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
  const std::string found = text("clocks differ by at least ", fixed(largest, 3),
                                 " s, measured with an error of ", fixed(vaguest, 3), " s");
  if (largest > kSkew_s)
    return {Level::kWarn, kWhat, text(found, " (", where, ")"),
            "times in logs and events will not match; let chrony or ntpd set the clocks"};
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
    const std::string found =
        text("slowest: ", sorted.front().second, " at ", fixed(100 * share, 0), " % of the median");
    const Level level = share < kVerySlowShare ? Level::kBad
                        : share < kSlowShare   ? Level::kWarn
                                               : Level::kOk;
    verdicts.push_back(
        {level, kind, found,
         level == Level::kOk
             ? ""
             : "all ranks wait for this node; exclude it, or stop what else runs there"});
  }
  return verdicts;
}

// A peer's loopback is not this node's.
Verdict judge_addresses(const std::vector<MetNode>& met) {
  constexpr const char* kWhat = "network";
  std::set<std::string> interfaces, hosts;
  std::string loopback;
  for (const MetNode& node : met) {
    const NetworkFacts& network = node.facts.network;
    interfaces.insert(network.interface);
    hosts.insert(node.facts.node);
    if (network.address.starts_with("127.") || network.address == "::1") loopback = node.facts.node;
  }
  std::string found = "peers will use";
  for (const std::string& interface : interfaces) found += " " + interface;
  constexpr const char* kAdvice = "name the interface between the nodes with --local-addr";
  if (!loopback.empty() && hosts.size() > 1)
    return {Level::kBad, kWhat, text(found, "; ", loopback, " chose its loopback"), kAdvice};
  if (interfaces.size() > 1)
    return {Level::kWarn, kWhat, text(found, ", which is not the same on all nodes"), kAdvice};
  return {Level::kOk, kWhat, found, ""};
}

struct Way {
  std::string name;  // "gpu001 -> gpu002"
  PairFacts facts;
};
std::vector<Way> all_ways(const std::vector<MetNode>& met) {
  std::map<int64_t, std::string> names;
  for (const MetNode& node : met) names[node.rank] = node.facts.node;
  std::vector<Way> ways;
  for (const MetNode& node : met)
    for (const PairFacts& pair : node.pairs)
      ways.push_back({text(node.facts.node, " -> ", names[pair.to]), pair});
  return ways;
}

// Each way on its own: one that is shut or slow holds up every collective.
Verdict judge_pairs(const std::vector<MetNode>& met) {
  constexpr const char* kWhat = "pairs";
  constexpr const char* kAdvice = "check the firewall, the cables and --local-addr";
  std::vector<Way> ways = all_ways(met);
  const size_t wanted = met.size() * (met.size() - 1);
  std::string shut;
  size_t shut_count = 0;
  for (const Way& way : ways)
    if (!way.facts.error.empty() && ++shut_count <= kShownPairs)
      shut += text("; ", way.name, ": ", way.facts.error);
  std::string found = text(ways.size() - shut_count, " of ",
                           counted(static_cast<int64_t>(wanted), "way"), " between nodes measured");
  if (shut_count > 0)
    return {Level::kBad, kWhat, text(found, "; ", shut_count, " failed", shut), kAdvice};
  if (ways.empty()) return {Level::kWarn, kWhat, found, "see the line `network` of the nodes"};
  const auto later = std::max_element(ways.begin(), ways.end(), [](const Way& a, const Way& b) {
    return a.facts.round_trip_s < b.facts.round_trip_s;
  });
  const std::string longest =
      text(fixed(later->facts.round_trip_s * 1e3, 3), " ms (", later->name, ")");
  std::sort(ways.begin(), ways.end(),
            [](const Way& a, const Way& b) { return a.facts.bytes_per_s < b.facts.bytes_per_s; });
  const double slowest = ways.front().facts.bytes_per_s;
  const double median = ways[ways.size() / 2].facts.bytes_per_s;
  found += text("; slowest ", rate_text(slowest), " (", ways.front().name, "), median ",
                rate_text(median), "; longest round trip ", longest);
  if (slowest < kVerySlowShare * median) return {Level::kWarn, kWhat, found, kAdvice};
  return {Level::kOk, kWhat, found, ""};
}

}  // namespace

std::vector<Verdict> judge_together(const std::vector<MetNode>& met, int64_t nodes) {
  std::vector<Verdict> verdicts{judge_presence(met, nodes), judge_skew(met), judge_sameness(met)};
  if (met.size() > 1) {
    verdicts.push_back(judge_addresses(met));
    verdicts.push_back(judge_pairs(met));
  }
  for (Verdict& speed : judge_speeds(met)) verdicts.push_back(std::move(speed));
  return verdicts;
}

}  // namespace lockstep::cli
