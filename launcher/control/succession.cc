#include "launcher/control/succession.h"

namespace lockstep::launcher::control {
namespace {

bool waits(const Succession& each) { return each.generation == each.base; }

}  // namespace

std::optional<Succession> after(const Succession& last, const Succession& next) {
  if (last.over) return std::nullopt;
  if (last.leader == 0) return next;
  const bool same_base = last.lost == next.lost && last.base == next.base;
  // Its leader's last word, or an older one: it need not always ask (coordinator.h).
  const bool of_its_leader = last.leader == next.lost && last.generation <= next.base;
  if (!same_base && !of_its_leader) return std::nullopt;
  if (waits(next) && !next.tie) return last;
  const bool taken = same_base && last.leader != next.leader &&
                     (next.generation <= last.generation || (last.tie && next.tie));
  return taken ? std::nullopt : std::optional(next);
}

bool keeps(const Succession& last, const Succession& own) {
  if (last.over) return false;
  if (last.leader == own.leader) return true;
  return waits(last) ? last.lost == own.leader : waits(own) && after(last, own).has_value();
}

}  // namespace lockstep::launcher::control
