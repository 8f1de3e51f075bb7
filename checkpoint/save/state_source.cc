#include "checkpoint/save/state_source.h"

namespace lockstep::checkpoint {

Result<void> HostState::read(const Reading& reading) {
  if (reading.look)
    for (size_t i = 0; i < layout_.size(); ++i) reading.look({i, 0, layout_[i].bytes});
  Result<void> taken;
  for (size_t i = 0; i < layout_.size() && taken.ok(); ++i)
    taken = reading.take({i, 0, layout_[i].bytes});
  if (reading.may_change) reading.may_change();
  return taken;
}

}  // namespace lockstep::checkpoint
