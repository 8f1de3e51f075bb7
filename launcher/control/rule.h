// The rules of docs/PROTOCOL.md: the check that one holds, and the switch with which a test takes
// one out of all nodes, to see that it is missed.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/check.h"

namespace lockstep::launcher::control {

// kP1 is the rule [P1], and so on. Code that keeps a rule cites it.
// clang-format off
enum class Rule : uint8_t { kNone, kP1, kP2, kP3, kP4, kP5, kP6, kP7, kP8, kP9, kP10, kP11, kP12,
                            kP13, kP14, kP15, kP16, kP17, kP18, kP19, kP20, kP21, kP22, kP23, kP24,
                            kP25, kP26 };
// clang-format on
inline constexpr int kRules = 26;

// A test that takes a rule out sets this as well, to see what becomes of the job where nothing
// asserts the rule. The code that keeps a rule never looks at it, and nothing else sets it.
inline std::atomic<Rule> rule_not_asserted = Rule::kNone;

}  // namespace lockstep::launcher::control

// LOCKSTEP_CHECK_RULE(P6, condition, parts…): a LOCKSTEP_CHECK of what the rule [P6] says. Where
// the condition is false a node has broken the rule, whatever another process has sent.
#define LOCKSTEP_CHECK_RULE(rule, condition, ...)                                          \
  do {                                                                                     \
    using ::lockstep::launcher::control::Rule;                                             \
    if (!(condition) && ::lockstep::launcher::control::rule_not_asserted != Rule::k##rule) \
        [[unlikely]]                                                                       \
      ::lockstep::check_failed(__FILE__, __LINE__, #condition,                             \
                               ::lockstep::text("[" #rule "] ", __VA_ARGS__));             \
  } while (0)
