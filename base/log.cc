#include "base/log.h"

#include <unistd.h>

#include <cerrno>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/printable.h"
#include "base/task_thread.h"

namespace lockstep {
inline namespace base {
namespace {

// How long who logs waits for a line that another thread writes. It is short: an agent that stands
// still for a second is suspect.
constexpr std::chrono::milliseconds kLinePatience{100};

struct Settings {
  std::mutex mutex;
  std::string prefix;
  bool on_stdout = false;
  std::string shown_last;
  std::unique_ptr<TaskThread> writer;  // null: whoever logs
  int64_t left_out = 0;                // lines since the writer took one
};
// Never destroyed: threads may log while the process is leaving.
Settings& settings() {
  static Settings* const instance = new Settings;
  return *instance;
}

const char* level_name(Level level) {
  switch (level) {
    case Level::kInfo:
    case Level::kNotice: return "INFO";
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

void write_all(int descriptor, const std::string& line) {
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(descriptor, line.data() + done, line.size() - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (written < 0 && errno == EINTR) {
      continue;
    } else {
      return;  // nobody reads it; a log line is not worth a failure
    }
  }
}

// Requires: the settings are locked.
std::string line_of(Level level, const std::string& message) {
  const std::string& before = settings().prefix;
  return text(kLogLineStart, timestamp(), " - ", level_name(level), " - ", printable(before),
              before.empty() ? "" : ": ", printable(message), "\n");
}

}  // namespace

void set_log_prefix(const std::string& prefix) {
  std::lock_guard lock(settings().mutex);
  settings().prefix = prefix;
}

void show_log_on_stdout(bool shown) {
  std::lock_guard lock(settings().mutex);
  settings().on_stdout = shown;
}

void log_on_a_thread() {
  std::lock_guard lock(settings().mutex);
  if (!settings().writer) settings().writer = std::make_unique<TaskThread>(kLinePatience);
}

void log_line(Level level, const std::string& message) {
  // The lock covers the write too: a line longer than PIPE_BUF must not be cut by another thread's.
  std::lock_guard lock(settings().mutex);
  const std::string line = line_of(level, message);
  const bool shown =
      settings().on_stdout && level != Level::kInfo && message != settings().shown_last;
  if (shown) settings().shown_last = message;
  std::string missing;
  if (settings().left_out > 0)
    missing =
        line_of(Level::kWarning,
                text(settings().left_out,
                     " log lines were dropped here: the log storage hung and the queue was full"));
  const auto write = [missing, line, shown] {
    write_all(STDERR_FILENO, missing + line);
    if (shown) write_all(STDOUT_FILENO, line);
  };
  if (!settings().writer) return write();
  settings().left_out = settings().writer->run(write) ? 0 : settings().left_out + 1;
}

}  // namespace base
}  // namespace lockstep
