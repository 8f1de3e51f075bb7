#include "core/audit/state_verdict.h"

#include <map>
#include <set>

#include "base/text.h"

namespace lockstep::core {
namespace {

constexpr int kRanksShown = 4;

const char* name_of(StateTensor tensor) {
  switch (tensor) {
    case StateTensor::kWeights: return "fp32 weights";
    case StateTensor::kFirstMoment: return "first moments";
    case StateTensor::kSecondMoment: return "second moments";
    case StateTensor::kGathered: return "weights as they are gathered";
  }
  return "";
}

std::string describe(int rank, const StateReport& report, const std::string& unit) {
  const std::string what = text(name_of(report.tensor), " of ", unit);
  switch (report.fault) {
    case StateFault::kNone: return "";
    case StateFault::kMemory:
      return text("memory of rank ", rank, ": ", what, " changed after they were written");
    case StateFault::kOutvoted:
      return text("copy of rank ", rank, ": ", what, " are not what more other ranks hold");
    case StateFault::kContradicted:
      return text("copy of rank ", rank, ": ", what, " are not what another rank holds");
    case StateFault::kReceived:
      if (report.source == rank)
        return text("memory of rank ", rank, ": ", what, " changed where they were gathered");
      return text("wire, or the memory behind it: what rank ", rank, " received from rank ",
                  report.source, " of the ", what, " is not what that rank holds");
  }
  return "";
}

// Rule 4.
bool was_passed_on(std::span<const StateReport> reports, int rank, int group) {
  const int source = reports[static_cast<size_t>(rank)].source;
  const int relay = rank / group * group + source % group;
  const StateReport& before = reports[static_cast<size_t>(relay)];
  return relay != rank && relay != source && before.fault == StateFault::kReceived &&
         before.source == source;
}

}  // namespace

AuditVerdict judge_state(std::span<const StateReport> reports, int group) {
  std::set<int> wrong, open;
  std::map<int, std::vector<int>> receivers;  // by source
  for (int rank = 0; rank < std::ssize(reports); ++rank) {
    const StateReport& report = reports[static_cast<size_t>(rank)];
    switch (report.fault) {
      case StateFault::kNone: break;
      case StateFault::kMemory:
      case StateFault::kOutvoted: wrong.insert(rank); break;
      case StateFault::kContradicted: open.insert(rank); break;
      case StateFault::kReceived:
        if (!was_passed_on(reports, rank, group)) receivers[report.source].push_back(rank);
        break;
    }
  }
  for (const auto& [source, ranks] : receivers)
    wrong.insert(ranks.size() > 1 ? source : ranks.front());
  return {
      wrong.empty() && open.empty(), {wrong.begin(), wrong.end()}, {open.begin(), open.end()}, {}};
}

std::string state_difference(std::span<const StateReport> reports,
                             std::span<const std::string> units) {
  std::string all;
  int64_t found = 0;
  for (int rank = 0; rank < std::ssize(reports); ++rank) {
    const StateReport& report = reports[static_cast<size_t>(rank)];
    if (report.fault == StateFault::kNone || found++ >= kRanksShown) continue;
    all += text(all.empty() ? "" : "; ", describe(rank, report, units[report.unit]));
  }
  if (found > kRanksShown) all += text("; and of ", found - kRanksShown, " more ranks");
  return all;
}

}  // namespace lockstep::core
