#include "base/log.h"

#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "base/clock.h"

namespace lockstep {
inline namespace base {
namespace {

struct Prefix {
  std::mutex mutex;
  std::string text;
};
// Never destroyed: threads may log while the process is leaving.
Prefix& prefix() {
  static Prefix* const instance = new Prefix;
  return *instance;
}

const char* level_name(Level level) {
  switch (level) {
    case Level::kInfo: return "INFO";
    case Level::kWarning: return "WARNING";
    case Level::kError: return "ERROR";
  }
  return "?";
}

// "2026-11-21 10:57:03,114"
std::string timestamp() {
  const int64_t now_ns = system_clock().unix_ns();
  std::string stamp = utc_text(now_ns);
  stamp[10] = ' ';
  stamp.back() = ',';
  const std::string ms = std::to_string(now_ns / 1'000'000 % 1000 + 1000);
  return stamp + ms.substr(1);
}

}  // namespace

void set_log_prefix(const std::string& text_before) {
  std::lock_guard lock(prefix().mutex);
  prefix().text = text_before;
}

void log_line(Level level, const std::string& message) {
  // The lock covers the write too: a line longer than PIPE_BUF must not be cut by another thread's.
  std::lock_guard lock(prefix().mutex);
  const std::string& before = prefix().text;
  const std::string line = text("[lockstep] ", timestamp(), " - ", level_name(level), " - ", before,
                                before.empty() ? "" : ": ", message, "\n");
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (written < 0 && errno == EINTR) {
      continue;
    } else {
      return;  // nobody reads stderr; a log line is not worth a failure
    }
  }
}

}  // namespace base
}  // namespace lockstep
