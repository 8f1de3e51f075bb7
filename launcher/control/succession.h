// The order of a job's generations, kept where all its agents write one after the other
// (rendezvous.h): each says which one it follows, so that none is ever followed by two that train.
#pragma once

#include <cstdint>
#include <optional>

#include "launcher/control/message.h"

namespace lockstep::launcher::control {

// `leader` leads `generation`, which follows `base`, led by `lost` (or by itself).
struct Succession {
  NodeId leader = 0;        // 0: no training has begun
  int64_t generation = -1;  // == base: it waits for nodes, to lead what will follow base
  NodeId lost = 0;
  int64_t base = -1;  // -1: the training begins
  bool tie = false;   // with no more than half of base's nodes
  bool over = false;  // its leader has ended the job: nothing follows but one that begins
  bool operator==(const Succession&) const = default;
};

// What is the newest one when `next` comes after `last`; none: it may not. Both have the promises
// of at least half of base's nodes. Either nobody has followed base yet, or who did can never have
// all its workers: a node that it needs has promised the newer generation. Two ties may need no
// node in common: of those the first one stays. Who waits with a majority decides nothing, and is
// only to be found.
std::optional<Succession> after(const Succession& last, const Succession& next);
// Whether who was let say `own` still leads, or waits to, when `last` is the newest one.
bool keeps(const Succession& last, const Succession& own);

}  // namespace lockstep::launcher::control
