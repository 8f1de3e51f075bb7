// Log lines to stderr: "[lockstep] 2026-11-21 10:57:03,114 - INFO - rank 0: text", in UTC.
// Thread-safe; one write a line.
#pragma once

#include <string>

#include "base/text.h"

namespace lockstep {
inline namespace base {

// A notice is information that people should see: INFO in the log.
enum class Level { kInfo, kNotice, kWarning, kError };
// Put before every later message, e.g. "rank 2"; call once at start.
void set_log_prefix(const std::string& prefix);
inline constexpr const char* kLogLineStart = "[lockstep] ";
// Whether all but kInfo goes to stdout as well; not at first. For a process whose stderr is a file
// that nobody watches, and whose stdout is shown. What is said again and again goes there once.
void show_log_on_stdout(bool shown);
// From here on another thread writes the lines, so that nobody waits for a file system that hangs.
void log_on_a_thread();
void log_line(Level level, const std::string& message);

template <typename... Parts>
void log_info(const Parts&... parts) {
  log_line(Level::kInfo, text(parts...));
}
template <typename... Parts>
void log_notice(const Parts&... parts) {
  log_line(Level::kNotice, text(parts...));
}
template <typename... Parts>
void log_warning(const Parts&... parts) {
  log_line(Level::kWarning, text(parts...));
}
template <typename... Parts>
void log_error(const Parts&... parts) {
  log_line(Level::kError, text(parts...));
}

}  // namespace base
}  // namespace lockstep
