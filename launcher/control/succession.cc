#include "launcher/control/succession.h"

namespace lockstep::launcher::control {
namespace {

bool waits(const Succession& each) { return each.generation == each.base; }

}  // namespace

std::optional<Succession> after(const Succession& last, const Succession& next, Rule without) {
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

bool keeps(const Succession& last, const Succession& own, Rule without) {
  if (last.over && without != Rule::kP14) return false;  // [P14]
  if (last.leader == own.leader) return true;
  return waits(last) ? last.lost == own.leader
                     : waits(own) && after(last, own, without).has_value();
}

}  // namespace lockstep::launcher::control
