// An audit of a step: ranks compute slots again that other ranks computed, and equal bits show that
// all of them did right. Who computes whose slot, and what the answers say. Pure.
//
// 1. In a round with shift k rank r computes the slot that rank r - k (modulo W) had in the step's
//    first round. So each rank is checked by another one, and checks a third.
// 2. The first shifts take every slot to another node, where there are several. By the shift 0,
//    which comes when the others are used up, a rank answers for its own slot again.
// 3. Answers for a slot that are not all alike lead to another round, up to kAuditRounds of them.
// 4. What most ranks gave is right. Repeated equal answers of a rank count once. A rank that gave
//    another value is wrong, and a difference in other slots that it answered for needs no other
//    explanation.
// 5. Where two values have equally many ranks, nobody is named. Of one rank alone any difference
//    names it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::core {

inline constexpr int kAuditRounds = 3;

// Whether every `interval`-th step is audited, and this is one of them. 0: never.
constexpr bool audits_step(int64_t interval, int64_t step) {
  return interval > 0 && step % interval == 0;
}

// kAuditRounds of them. `ranks_of_node`: rank r is on node r / this; 0: all are on one.
std::vector<int> audit_shifts(int world_size, int ranks_of_node);

// What a rank computed for a slot.
struct AuditAnswer {
  int rank = 0;
  uint64_t digest = 0;
};

struct AuditVerdict {
  bool same = true;            // all answers for each slot are alike
  std::vector<int> wrong;      // the ranks that are named, ascending
  std::vector<int> undecided;  // those that contradict each other, and rule 4 names none of them
  std::vector<int64_t> slots;  // places in `answers` where the answers differ
  bool decided() const { return undecided.empty(); }
};

// `answers`: of each slot.
AuditVerdict judge(std::span<const std::vector<AuditAnswer>> answers, int world_size);
// Those of verdict.slots for which `rank` is named, or, where it is not, for which it is undecided.
// `verdict`: what judge says of `answers`.
std::vector<int64_t> slots_against(int rank, std::span<const std::vector<AuditAnswer>> answers,
                                   const AuditVerdict& verdict);

}  // namespace lockstep::core
