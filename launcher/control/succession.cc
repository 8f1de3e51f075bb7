#include "launcher/control/succession.h"

namespace lockstep::launcher::control {

bool may_follow(const Succession& last, const Succession& next) {
  if (last.leader == 0) return true;
  if (last.lost == next.lost && last.base == next.base)
    return last.leader == next.leader ||
           (next.generation > last.generation && !(last.tie && next.tie));
  // Or an older one of its generations: it need not always ask (coordinator.h).
  return last.leader == next.lost && last.generation <= next.base;
}

}  // namespace lockstep::launcher::control
