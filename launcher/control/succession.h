// The order of a job's generations. It is kept at the rendezvous, where the agents write one line
// after the other. Each line says which generation it follows, so that no generation is followed by
// two that train.
#pragma once

#include <cstdint>
#include <optional>

#include "launcher/control/message.h"
#include "launcher/control/rule.h"

namespace lockstep::launcher::control {

// `leader` leads `generation`, which follows `base`, led by `lost` (or by itself).
struct Succession {
  NodeId leader = 0;        // 0: no training has begun
  int64_t generation = -1;  // == base: it waits for nodes, to lead what will follow base
  NodeId lost = 0;
  int64_t base = -1;  // -1: the training begins
  bool tie = false;   // with no more than half of base's nodes
  bool over = false;  // its leader has ended the job; only a new training may follow
  bool operator==(const Succession&) const = default;
};

// [P11] to [P14]: what is the newest line once `next` is written after `last`. None: it may not be
// written.
std::optional<Succession> after(const Succession& last, const Succession& next,
                                Rule without = Rule::kNone);
// Whether the coordinator that wrote `own` still leads, or waits to, when `last` is the newest
// line.
bool keeps(const Succession& last, const Succession& own, Rule without = Rule::kNone);

}  // namespace lockstep::launcher::control
