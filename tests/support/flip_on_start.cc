// Linked into a worker, it has one bit turn over: LOCKSTEP_FLIP_BIT="STEP RANK WHERE PLACE BIT
// [WHEN [SHARE]]", where WHERE is a FlipIn's number and WHEN a FlipWhen's (core/audit/bit_flip.h).
#include <cstdlib>
#include <sstream>

#include "core/audit/bit_flip.h"

namespace lockstep::core {
namespace {

struct OnStart {
  OnStart() {
    const char* const words = std::getenv("LOCKSTEP_FLIP_BIT");
    std::istringstream in(words != nullptr ? words : "");
    BitFlip flip;
    int where = 0, when = 0;
    in >> flip.step >> flip.rank >> where >> flip.place >> flip.bit;
    if (!in) return;
    in >> when >> flip.share;
    flip.where = static_cast<FlipIn>(where);
    flip.when = static_cast<FlipWhen>(when);
    set_bit_flip(flip);
  }
} on_start;

}  // namespace
}  // namespace lockstep::core
