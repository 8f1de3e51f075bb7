#include "launcher/agent/log_files.h"

#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "launcher/host/process.h"
#include "launcher/host/run_files.h"

namespace lockstep::launcher {
LogFiles::~LogFiles() {
  tasks_.post([this] {
    for (const auto& each : stand_ins_) append(*each, /*all=*/true);
  });
}

// Nothing: its storage does not answer.
std::optional<int64_t> LogFiles::size_when_open(const std::filesystem::path& file) {
  return tasks_.ask<int64_t>([this, file] {
    append_file(file, "");  // who opens it next says what is wrong with it
    return file_size(file_system_, file);
  });
}

LogPlace LogFiles::place(const std::filesystem::path& log, const LogPlace& now) {
  if (now.log == log && now.file != log) return {log, now.file, file_size(file_system_, now.file)};
  const std::optional<int64_t> size = size_when_open(log);
  if (size || now.log == log) return {log, log, size};
  const auto file = folder_ / text("log_", stand_ins_.size());
  stand_ins_.push_back(std::make_shared<StandIn>(StandIn{log, file}));
  log_warning(log.string(), ": the storage of this log does not answer; its lines go to ",
              file.string(), " until it answers again");
  return {log, file, 0};
}

std::vector<std::string> LogFiles::last_lines(const LogPlace& place, size_t count) {
  const int64_t from = place.start.value_or(0);
  if (place.file != place.log) return launcher::last_lines(file_system_, place.file, from, count);
  using Lines = std::vector<std::string>;
  return tasks_
      .ask<Lines>([this, file = place.file, from, count] {
        return launcher::last_lines(file_system_, file, from, count);
      })
      .value_or(Lines());
}

void LogFiles::follow() {
  if (stand_ins_.empty()) return;
  tasks_.post_latest("follow", [this, each = stand_ins_] {
    for (const auto& stand_in : each) append(*stand_in, /*all=*/false);
  });
}

void LogFiles::append(StandIn& from, bool all) {
  const auto opened = file_system_.open(from.file);
  if (!opened) return;
  File& file = *opened.value();
  for (;;) {
    std::string fresh = unread(file, from.copied);
    if (!all) fresh.resize(fresh.rfind('\n') + 1);  // npos + 1 is 0: no whole line
    if (fresh.empty() || !append_file(from.log, fresh)) return;
    from.copied += std::ssize(fresh);
  }
}

}  // namespace lockstep::launcher
