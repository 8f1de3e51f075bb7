#include "launcher/agent/console_tail.h"

#include <algorithm>

#include "base/log.h"
#include "launcher/host/process.h"

namespace lockstep::launcher {
namespace {
constexpr int64_t kMaxBytesAtOnce = 1 << 16;

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

Result<ConsoleTail> ConsoleTail::create(FileSystem& file_system,
                                        const std::filesystem::path& source,
                                        const std::filesystem::path& copy) {
  auto opened = file_system.exists(source) ? file_system.open(source) : file_system.create(source);
  if (!opened) return opened.error();
  LOCKSTEP_TRY(const int64_t end, (*opened)->size_bytes());
  return ConsoleTail(file_system, copy, std::move(opened).value(), end);
}

std::string ConsoleTail::unread(int64_t from) {
  const auto size = source_->size_bytes();
  if (!size || size.value() <= from) return "";
  std::string bytes(static_cast<size_t>(std::min(size.value() - from, kMaxBytesAtOnce)), '\0');
  if (!source_->read_at(std::as_writable_bytes(std::span(bytes)), from)) return "";
  return bytes;
}

// Whole lines only, so that they do not run into the worker's own (which it appends meanwhile).
void ConsoleTail::append_to_log(const std::string& bytes) {
  const bool endless = static_cast<int64_t>(bytes.size()) == kMaxBytesAtOnce;
  const size_t end = bytes.rfind('\n');
  if (end == std::string::npos && !endless) return;
  const auto lines = std::string_view(bytes).substr(0, end == std::string::npos ? end : end + 1);
  if (append_file(copy_, without_log_lines(lines))) copied_ += static_cast<int64_t>(lines.size());
}

bool ConsoleTail::pump() {
  if (const std::string fresh = unread(copied_); !fresh.empty()) append_to_log(fresh);
  while (!console_gone_) {
    const std::string fresh = unread(offset_);
    if (fresh.empty()) return true;
    const int64_t shown = write_console(fresh);
    if (shown < 0) {
      console_gone_ = true;
      log_warning("nobody reads standard output any more; its lines go on in ", copy_.string());
    } else if (shown == 0) {
      return false;
    } else {
      offset_ += shown;
    }
  }
  return true;
}

}  // namespace lockstep::launcher
