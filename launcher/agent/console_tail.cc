#include "launcher/agent/console_tail.h"

#include <algorithm>

#include "base/log.h"
#include "launcher/host/process.h"
#include "launcher/host/run_files.h"

namespace lockstep::launcher {
namespace {
constexpr size_t kMostLine = 1 << 16;  // longer ones are cut

// Less the worker's log lines, which it writes to both files.
std::string without_log_lines(std::string_view lines) {
  std::string out;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n') + 1);
    const std::string_view whole = line.empty() ? lines : line;
    if (!whole.starts_with(kLogLineStart)) out += whole;
    lines.remove_prefix(whole.size());
  }
  return out;
}

}  // namespace

bool ConsoleTail::is_open() {
  if (source_) return true;
  auto opened = file_system_.open(path_);
  if (!opened) return false;
  const auto end = opened.value()->size_bytes();
  if (!end) return false;
  source_ = std::move(opened).value();
  offset_ = copied_ = from_.value_or(end.value());
  return true;
}

// Whole lines only, so that they do not run into the worker's own (which it appends meanwhile).
void ConsoleTail::append_to_log(const std::string& bytes) {
  const bool endless = bytes.size() == kMostLine;
  const size_t end = bytes.rfind('\n');
  if (end == std::string::npos && !endless) return;
  const auto lines = std::string_view(bytes).substr(0, end == std::string::npos ? end : end + 1);
  if (append_file(copy_, without_log_lines(lines))) copied_ += static_cast<int64_t>(lines.size());
}

bool ConsoleTail::pump() {
  if (!is_open()) return true;
  if (const std::string fresh = unread(*source_, copied_); !fresh.empty()) append_to_log(fresh);
  while (!console_gone_) {
    const std::string fresh = unread(*source_, offset_);
    if (fresh.empty()) return true;
    const int64_t shown = write_console(fresh);
    if (shown < 0) {
      console_gone_ = true;
      log_warning("standard output is closed; further lines are only in ", copy_.string());
    } else if (shown == 0) {
      return false;
    } else {
      offset_ += shown;
    }
  }
  return true;
}

}  // namespace lockstep::launcher
