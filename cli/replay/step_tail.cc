#include "cli/replay/step_tail.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

namespace lockstep::cli {

Result<void> StepTail::read() {
  if (!file_system_.exists(file_)) return {};
  LOCKSTEP_TRY(const auto file, file_system_.open(file_));
  LOCKSTEP_TRY(const int64_t size, file->size_bytes());
  if (size <= read_bytes_) return {};
  std::string lines(static_cast<size_t>(size - read_bytes_), '\0');
  LOCKSTEP_RETURN_IF_ERROR(
      file->read_at(std::as_writable_bytes(std::span(lines.data(), lines.size())), read_bytes_));
  lines.resize(lines.rfind('\n') + 1);  // npos + 1 is 0
  if (lines.empty()) return {};
  LOCKSTEP_TRY(RunLog log, parse_metrics_jsonl(lines, file_.string()));
  read_bytes_ += static_cast<int64_t>(lines.size());
  for (StepRecord& record : log.steps) {
    last_step_ = std::max(last_step_, record.step);
    steps_.insert_or_assign(record.step, std::move(record));
  }
  return {};
}

}  // namespace lockstep::cli
