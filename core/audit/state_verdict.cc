#include "core/audit/state_verdict.h"

#include <algorithm>
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
    case StateTensor::kGathered: return "gathered weights";
  }
  return "";
}

std::string describe(int rank, const StateReport& report, int giver, const std::string& unit) {
  const std::string what = text(name_of(report.tensor), " of ", unit);
  switch (report.fault) {
    case StateFault::kNone: return "";
    case StateFault::kMemory:
      return text("memory of rank ", rank, ": ", what, " changed after they were written");
    case StateFault::kOutvoted:
      return text("copy of rank ", rank, ": ", what, " differ from what most ranks hold");
    case StateFault::kContradicted:
    case StateFault::kContradictedAside:
      return text("copy of rank ", rank, ": ", what, " differ from what another rank holds");
    case StateFault::kReceived:
      if (report.source == rank)
        return text("memory of rank ", rank, ": ", what, " changed in the gather buffer");
      return text("network or receive buffer: what rank ", rank, " received from rank ",
                  report.source, giver == report.source ? "" : text(" through rank ", giver),
                  " of the ", what, " differs from what that rank holds");
    case StateFault::kExchanged:
      if (report.source == rank)
        return text("memory of rank ", rank, ": gradients of ", unit,
                    " changed in the exchange buffer");
      return text("network or receive buffer: what rank ", rank, " received from rank ",
                  report.source, " of the gradients of ", unit,
                  " differs from what that rank sent");
  }
  return "";
}

// Rules 4 and 7: from whom `rank` took what it reports.
int giver_to(int rank, const StateReport& report, int group) {
  const int source = report.source, relay = rank / group * group + source % group;
  const bool at_first_hand =
      report.fault == StateFault::kExchanged || relay == rank || rank / group == source / group;
  return at_first_hand ? source : relay;
}

// Rules 3 to 5 and 7, of those that received something wrongly.
class Receivers {
 public:
  Receivers(std::span<const StateReport> reports, int group) : reports_(reports), group_(group) {}
  void add(int rank) {
    const int source = of(rank).source, giver = giver_to(rank, of(rank), group_);
    const StateReport& before = of(giver);
    const bool passed_on = giver != source;
    if (passed_on && before.fault == StateFault::kReceived && before.source == source) return;
    if (passed_on && before.fault != StateFault::kNone)
      unclear_.push_back({rank, giver, source});
    else
      takers_[giver].push_back(rank);
  }
  void judge(std::set<int>& wrong, std::set<int>& open) {
    for (const auto& [giver, ranks] : takers_)
      if (ranks.size() > 1) wrong.insert(giver);
    const std::set<int> named = wrong;
    for (const auto& [giver, ranks] : takers_)
      if (ranks.size() == 1) judge_one(ranks.front(), giver, named, wrong);
    for (const std::set<int>& ranks : unclear_)
      if (!any_in(wrong, ranks)) open.insert(ranks.begin(), ranks.end());
  }

 private:
  const StateReport& of(int rank) const { return reports_[static_cast<size_t>(rank)]; }
  static bool any_in(const std::set<int>& named, const std::set<int>& ranks) {
    return std::any_of(ranks.begin(), ranks.end(), [&](int r) { return named.contains(r); });
  }
  void judge_one(int rank, int giver, const std::set<int>& named, std::set<int>& wrong) {
    if (rank != giver && of(giver).fault != StateFault::kNone)
      unclear_.push_back({rank, giver});
    else if (!any_in(named, {giver, of(rank).source}))
      wrong.insert(rank);
  }

  std::span<const StateReport> reports_;
  int group_;
  std::map<int, std::vector<int>> takers_;  // by giver
  std::vector<std::set<int>> unclear_;
};

}  // namespace

StateReport report_at(StateFault fault, size_t place) {
  return {fault, place / kStateTensors, static_cast<StateTensor>(place % kStateTensors)};
}

StateReport report_of_copies(int rank, std::span<const std::vector<AuditAnswer>> answers,
                             int ranks) {
  const AuditVerdict verdict = judge(answers, ranks);
  const std::vector<int64_t> against = slots_against(rank, answers, verdict);
  if (against.empty()) return {};
  const auto first = static_cast<size_t>(against.front());
  if (std::binary_search(verdict.wrong.begin(), verdict.wrong.end(), rank))
    return report_at(StateFault::kOutvoted, first);
  const bool gathered = std::any_of(against.begin(), against.end(), [](int64_t at) {
    return report_at({}, static_cast<size_t>(at)).tensor == StateTensor::kGathered;
  });
  return report_at(gathered ? StateFault::kContradicted : StateFault::kContradictedAside, first);
}

AuditVerdict judge_state(std::span<const StateReport> reports, int group) {
  std::set<int> wrong, open;
  Receivers receivers(reports, group);
  for (int rank = 0; rank < std::ssize(reports); ++rank) {
    switch (reports[static_cast<size_t>(rank)].fault) {
      case StateFault::kNone: break;
      case StateFault::kMemory:
      case StateFault::kOutvoted: wrong.insert(rank); break;
      case StateFault::kContradicted:
      case StateFault::kContradictedAside: open.insert(rank); break;
      case StateFault::kReceived:
      case StateFault::kExchanged: receivers.add(rank); break;
    }
  }
  receivers.judge(wrong, open);
  return {
      wrong.empty() && open.empty(), {wrong.begin(), wrong.end()}, {open.begin(), open.end()}, {}};
}

bool may_explain_slots(std::span<const StateReport> reports) {
  return std::any_of(reports.begin(), reports.end(), [](const StateReport& report) {
    return report.fault != StateFault::kNone && report.fault != StateFault::kContradictedAside &&
           report.fault != StateFault::kExchanged;
  });
}

std::string state_difference(std::span<const StateReport> reports, int group,
                             std::span<const std::string> units) {
  std::string all;
  int64_t found = 0;
  for (int rank = 0; rank < std::ssize(reports); ++rank) {
    const StateReport& report = reports[static_cast<size_t>(rank)];
    if (report.fault == StateFault::kNone || found++ >= kRanksShown) continue;
    all += text(all.empty() ? "" : "; ",
                describe(rank, report, giver_to(rank, report, group), units[report.unit]));
  }
  if (found > kRanksShown) all += text("; and ", found - kRanksShown, " more ranks report faults");
  return all;
}

}  // namespace lockstep::core
