#include "core/audit/verdict.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace lockstep::core {
namespace {

using RanksOf = std::map<uint64_t, std::set<int>>;  // by digest: who gave it

RanksOf ranks_of(const std::vector<AuditAnswer>& answers) {
  RanksOf ranks;
  for (const AuditAnswer& answer : answers) ranks[answer.digest].insert(answer.rank);
  return ranks;
}

// The value that more ranks gave than any other one, two at least.
std::optional<uint64_t> right_value(const RanksOf& ranks) {
  std::optional<uint64_t> best;
  size_t most = 1;
  for (const auto& [digest, who] : ranks) {
    if (who.size() > most)
      best = digest;
    else if (who.size() == most)
      best.reset();
    most = std::max(most, who.size());
  }
  return best;
}

bool any_in(const std::set<int>& who, std::span<const int> ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return who.contains(rank); });
}

std::set<int> all_of(const RanksOf& ranks) {
  std::set<int> all;
  for (const auto& [digest, who] : ranks) all.insert(who.begin(), who.end());
  return all;
}

}  // namespace

std::vector<int> audit_shifts(int world_size, int ranks_of_node) {
  const int near = ranks_of_node > 0 ? ranks_of_node : world_size;
  std::vector<int> shifts;
  for (int shift = near; shift <= world_size - near; ++shift) shifts.push_back(shift);
  for (int shift = 1; shift < world_size; ++shift)
    if (shift < near || shift > world_size - near) shifts.push_back(shift);
  shifts.push_back(0);
  for (size_t i = 0; shifts.size() < kAuditRounds; ++i) shifts.push_back(shifts[i]);
  shifts.resize(kAuditRounds);
  return shifts;
}

AuditVerdict judge(std::span<const std::vector<AuditAnswer>> answers, int world_size) {
  AuditVerdict verdict;
  std::set<int> wrong, open;
  std::vector<RanksOf> unclear;
  for (size_t slot = 0; slot < answers.size(); ++slot) {
    const RanksOf ranks = ranks_of(answers[slot]);
    if (ranks.size() < 2) continue;
    verdict.same = false;
    verdict.slots.push_back(static_cast<int64_t>(slot));
    const std::optional<uint64_t> right = right_value(ranks);
    if (!right) {
      unclear.push_back(ranks);
      continue;
    }
    for (const auto& [digest, who] : ranks)
      if (digest != *right) wrong.insert(who.begin(), who.end());
  }
  if (!verdict.same && world_size == 1) wrong.insert(0);
  verdict.wrong.assign(wrong.begin(), wrong.end());
  for (const RanksOf& ranks : unclear) {
    const std::set<int> all = all_of(ranks);
    if (!any_in(all, verdict.wrong)) open.insert(all.begin(), all.end());
  }
  verdict.undecided.assign(open.begin(), open.end());
  return verdict;
}

std::vector<int64_t> slots_against(int rank, std::span<const std::vector<AuditAnswer>> answers,
                                   const AuditVerdict& verdict) {
  const bool named = std::binary_search(verdict.wrong.begin(), verdict.wrong.end(), rank);
  std::vector<int64_t> against;
  for (const int64_t slot : verdict.slots) {
    const RanksOf ranks = ranks_of(answers[static_cast<size_t>(slot)]);
    const std::optional<uint64_t> right = right_value(ranks);
    const bool errs = right && std::any_of(ranks.begin(), ranks.end(), [&](const auto& each) {
                        return each.first != *right && each.second.contains(rank);
                      });
    const std::set<int> all = all_of(ranks);
    const bool open = !right && all.contains(rank) && !any_in(all, verdict.wrong);
    if (named ? errs : open) against.push_back(slot);
  }
  return against;
}

}  // namespace lockstep::core
