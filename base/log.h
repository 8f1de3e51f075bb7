// Log lines to stderr: "[lockstep] 2026-11-21 10:57:03,114 - INFO - rank 0: text", in UTC.
// Thread-safe; one write a line.
#pragma once

#include <string>

#include "base/text.h"

namespace lockstep {
inline namespace base {

enum class Level { kInfo, kWarning, kError };
// Put before every later message, e.g. "rank 2"; call once at start.
void set_log_prefix(const std::string& prefix);
void log_line(Level level, const std::string& message);

template <typename... Parts>
void log_info(const Parts&... parts) { log_line(Level::kInfo, text(parts...)); }
template <typename... Parts>
void log_warning(const Parts&... parts) { log_line(Level::kWarning, text(parts...)); }
template <typename... Parts>
void log_error(const Parts&... parts) { log_line(Level::kError, text(parts...)); }

}  // namespace base
}  // namespace lockstep
