#include "launcher/control/succession.h"

#include <string>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

bool waits(const Succession& each) { return each.generation == each.base; }

std::string words_of(const Succession& s) {
  return text("(generation ", s.generation, " of ", s.leader, " follows ", s.base, " of ", s.lost,
              s.tie ? ", a tie" : "", s.over ? ", over)" : ")");
}

std::optional<Succession> decide(const Succession& last, const Succession& next, Rule without) {
  if (last.over && without != Rule::kP14) return std::nullopt;  // [P14]
  if (last.leader == 0) return next;
  const bool same_base = last.lost == next.lost && last.base == next.base;
  // [P11] The newest line is one of the leader of base. That leader need not write each generation.
  const bool of_its_leader = last.leader == next.lost && last.generation <= next.base;
  if (!same_base && !of_its_leader && without != Rule::kP11) return std::nullopt;
  // The line of a coordinator that waits with a majority decides nothing. It only says where it is.
  if (waits(next) && !next.tie) return last;
  if (!same_base || last.leader == next.leader) return next;
  const bool newer = next.generation > last.generation || without == Rule::kP12;  // [P12]
  const bool second_tie = last.tie && next.tie && without != Rule::kP13;          // [P13]
  return newer && !second_tie ? std::optional(next) : std::nullopt;
}

// What the rules say of two lines that follow each other, whoever wrote the older one.
void check_order(const Succession& last, const Succession& next) {
  const auto both = [&] { return words_of(next) + " after " + words_of(last); };
  LOCKSTEP_CHECK_RULE(P14, !last.over, both());
  const bool same_base = last.base == next.base && last.lost == next.lost;
  LOCKSTEP_CHECK_RULE(P11, last.leader == 0 || same_base || last.leader == next.lost, both());
  if (last.leader == 0 || last.leader == next.leader || !same_base) return;
  LOCKSTEP_CHECK_RULE(P12, next.generation > last.generation, both());
  LOCKSTEP_CHECK_RULE(P13, !(last.tie && next.tie), both());
}

}  // namespace

std::optional<Succession> after(const Succession& last, const Succession& next, Rule without) {
  LOCKSTEP_CHECK(next.leader != 0 && next.generation >= next.base && !next.over, words_of(next));
  const std::optional<Succession> newest = decide(last, next, without);
  LOCKSTEP_CHECK(!newest || *newest == next || *newest == last, words_of(next));
  if (newest && *newest == next) check_order(last, next);
  return newest;
}

bool keeps(const Succession& last, const Succession& own, Rule without) {
  if (last.over && without != Rule::kP14) return false;  // [P14]
  if (last.leader == own.leader) return true;
  return waits(last) ? last.lost == own.leader
                     : waits(own) && after(last, own, without).has_value();
}

}  // namespace lockstep::launcher::control
