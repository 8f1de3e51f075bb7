// LOCKSTEP_CHECK(condition, parts…): a broken invariant is a bug. Always on, prints the values,
// aborts.
#pragma once

#include <string>

#include "base/text.h"

namespace lockstep {
inline namespace base {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& values);
}  // namespace base
}  // namespace lockstep

#define LOCKSTEP_CHECK(condition, ...)                                                         \
  do {                                                                                         \
    if (!(condition)) [[unlikely]]                                                             \
      ::lockstep::check_failed(__FILE__, __LINE__, #condition, ::lockstep::text(__VA_ARGS__)); \
  } while (0)
