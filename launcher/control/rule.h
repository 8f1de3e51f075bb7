// The rules of docs/PROTOCOL.md that a test can take out, to see that the simulation misses them.
#pragma once

#include <cstdint>

namespace lockstep::launcher::control {

// kP1 is the rule [P1], and so on. Code that keeps a rule cites it.
// clang-format off
enum class Rule : uint8_t { kNone, kP1, kP2, kP3, kP4, kP5, kP6, kP7, kP8, kP9, kP10, kP11, kP12,
                            kP13, kP14, kP15, kP16, kP17, kP18, kP19, kP20, kP21, kP22, kP23 };
// clang-format on
inline constexpr int kRules = 23;

}  // namespace lockstep::launcher::control
