#include "core/sharding/slot_audit.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "core/comm/gather_words.h"

namespace lockstep::core {
namespace {

uint64_t digest_of(const SlotDigests& digests) {
  return xxh3_64(std::as_bytes(std::span(digests)));
}

bool names(const std::vector<int>& ranks, int rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

// Whether there is an answer, and its digest.
void append_answer(std::vector<uint64_t>& words, const SlotDigests& digests) {
  words.push_back(digests.empty() ? 0 : 1);
  words.push_back(digest_of(digests));
}

void note_answer(std::vector<AuditAnswer>& answers, int rank, const uint64_t* words) {
  if (words[0] != 0) answers.push_back({rank, words[1]});
}

}  // namespace

SlotAudit::SlotAudit(Communicator& comm, const layout::SlotMap& map, int ranks_of_node,
                     std::vector<std::string> units)
    : comm_(comm),
      map_(map),
      shifts_(audit_shifts(comm.world_size(), ranks_of_node)),
      units_(std::move(units)) {}

Result<StepAudit> SlotAudit::run(const SlotDigests& computed, const Again& again) const {
  StepAudit audit;
  std::vector<std::vector<AuditAnswer>> answers(static_cast<size_t>(world_size()));
  SlotDigests first_again;
  for (const int shift : shifts_) {
    LOCKSTEP_TRY(SlotDigests mine, again(map_.slot(/*round=*/0, owner_of(comm_.rank(), shift))));
    std::vector<uint64_t> words;
    append_answer(words, audit.rounds == 0 ? computed : SlotDigests());
    append_answer(words, mine);
    auto all = gather_words(comm_, words);
    if (!all.ok()) return all.error().in("sharing what an audit computed");
    for (int rank = 0; rank < world_size(); ++rank) {
      const uint64_t* const row = all->data() + 4 * rank;
      note_answer(answers[static_cast<size_t>(rank)], rank, row);
      note_answer(answers[static_cast<size_t>(owner_of(rank, shift))], rank, row + 2);
    }
    if (audit.rounds++ == 0) first_again = std::move(mine);
    audit.verdict = judge(answers, world_size());
    if (audit.verdict.decided()) break;
  }
  if (audit.verdict.same) return audit;
  LOCKSTEP_TRY(audit.difference, difference(audit.verdict, computed, first_again));
  return audit;
}

// Of the first slot whose two first answers differ. Collective.
Result<std::string> SlotAudit::difference(const AuditVerdict& verdict, const SlotDigests& computed,
                                          const SlotDigests& again) const {
  const size_t count = units_.size() + 1;
  std::vector<uint64_t> mine;
  for (const SlotDigests* digests : {&computed, &again}) {
    LOCKSTEP_CHECK(digests->empty() || digests->size() == count, digests->size(), " of ", count);
    mine.insert(mine.end(), digests->begin(), digests->end());
    mine.resize(mine.size() + count - digests->size());
  }
  auto all = gather_words(comm_, mine);
  if (!all.ok()) return all.error().in("sharing where an audit's results differ");
  for (const int64_t place : verdict.slots) {
    const auto by = (place + shifts_.front()) % world_size();
    const std::string found = compare(all->data() + place * std::ssize(mine),
                                      all->data() + by * std::ssize(mine) + std::ssize(mine) / 2);
    if (!found.empty()) return text("slot ", *map_.slot(0, static_cast<int>(place)), ": ", found);
  }
  return std::string("only later answers differ");
}

// Where the answers of two ranks for a slot differ; "": nowhere.
std::string SlotAudit::compare(const uint64_t* a, const uint64_t* b) const {
  size_t differing = 0, first = 0;
  for (size_t unit = units_.size(); unit > 0; --unit) {
    if (a[unit] == b[unit]) continue;
    ++differing;
    first = unit;
  }
  const bool loss = a[0] != b[0];
  if (!loss && differing == 0) return "";
  const std::string gradients =
      text("the gradients of ", differing, " of ", units_.size(), " units (",
           differing > 0 ? units_[first - 1] : "", " first in backward)");
  return differing == 0 ? "the loss" : loss ? "the loss, " + gradients : gradients;
}

Result<StepAudit> SlotAudit::run_one(int64_t slot, const Again& again) const {
  StepAudit audit;
  const int64_t rounds = world_size() == 1 ? 2 : 1;
  std::vector<std::vector<AuditAnswer>> answers(1);
  std::vector<SlotDigests> given;  // by answer
  while (audit.rounds++ < rounds) {
    LOCKSTEP_TRY(const SlotDigests mine, again(slot));
    auto all = gather_words(comm_, mine);
    if (!all.ok()) return all.error().in("sharing what an audit computed");
    for (int rank = 0; rank < world_size(); ++rank) {
      const auto row = all->begin() + rank * std::ssize(mine);
      given.emplace_back(row, row + std::ssize(mine));
      answers[0].push_back({rank, digest_of(given.back())});
    }
  }
  audit.verdict = judge(answers, world_size());
  size_t right = 0;
  while (right < given.size() && names(audit.verdict.wrong, answers[0][right].rank)) ++right;
  if (right == given.size()) right = 0;  // one rank alone, which contradicts itself
  audit.slot = answer_of(slot, given[right]);
  if (!audit.verdict.same) audit.difference = difference_of_one(slot, given, right);
  return audit;
}

AuditedSlot SlotAudit::answer_of(int64_t slot, const SlotDigests& digests) const {
  LOCKSTEP_CHECK(digests.size() == units_.size() + 1, digests.size(), " of ", units_.size());
  AuditedSlot answer{slot, std::bit_cast<double>(digests.front()), {}};
  for (size_t unit = 0; unit < units_.size(); ++unit)
    answer.gradients.emplace_back(units_[unit], digests[unit + 1]);
  return answer;
}

// What the first ranks whose answers are not `right` have otherwise.
std::string SlotAudit::difference_of_one(int64_t slot, const std::vector<SlotDigests>& given,
                                         size_t right) const {
  constexpr int kMost = 4;
  std::string found = text("slot ", slot);
  int told = 0;
  for (size_t i = 0; i < given.size() && told < kMost; ++i) {
    const std::string what = compare(given[right].data(), given[i].data());
    if (what.empty()) continue;
    found +=
        text(told++ == 0 ? ": " : "; ", "rank ", i % static_cast<size_t>(world_size()), ": ", what);
  }
  return found;
}

}  // namespace lockstep::core
