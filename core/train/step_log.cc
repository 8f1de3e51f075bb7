#include "core/train/step_log.h"

#include <optional>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep::core {
namespace {

constexpr const char* kDamagedName = "metrics.damaged.jsonl";
constexpr size_t kMostPendingBytes = size_t{64} << 20;

std::optional<LoggedStep> parse_line(const std::string& line) try {
  const auto j = parse_json(line);
  return LoggedStep{j.at("step"),
                    j.at("loss_hex"),
                    j.value("t", 0.0),
                    j.value("step_time_s", 0.0),
                    j.value("tokens", 0.0),
                    j.value("data_wait_s", 0.0),
                    j.value("generation", int64_t{0}),
                    j.value("world_size", int64_t{0})};
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
}

// First the damaged lines are safe, then the log is published without them.
Result<void> set_aside(FileSystem& file_system, const std::filesystem::path& path,
                       const std::string& damaged, const std::string& whole) {
  const auto aside = path.parent_path() / kDamagedName;
  std::string before;
  if (file_system.exists(aside)) {
    LOCKSTEP_TRY(before, read_file(file_system, aside));
  }
  LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, aside, before + damaged));
  return publish_file(file_system, path, whole);
}

}  // namespace

Result<std::unique_ptr<StepLog>> StepLog::open(FileSystem& file_system,
                                               const std::filesystem::path& path) {
  std::unique_ptr<StepLog> log(new StepLog(file_system, path));
  if (!file_system.exists(path)) {
    LOCKSTEP_TRY(log->file_, file_system.create(path));
    return log;
  }
  LOCKSTEP_TRY(std::string all, read_file(file_system, path));
  all.resize(all.rfind('\n') + 1);  // npos + 1 is 0: no whole line
  std::string whole, damaged, places;
  int64_t number = 0;
  for (const std::string& line : split(all, '\n')) {
    ++number;
    if (line.empty()) continue;
    if (auto logged = parse_line(line)) {
      log->add(*std::move(logged));
      whole += line + "\n";
    } else {
      damaged += line + "\n";
      places += text(places.empty() ? "" : ", ", number);
    }
  }
  if (!damaged.empty()) {
    const auto done = set_aside(file_system, path, damaged, whole);
    log_warning(path.string(), " has malformed lines: ", places,
                done.ok() ? text("; they were moved to ", kDamagedName)
                          : text("; they cannot be moved: ", done.error().message));
    if (done.ok()) all = std::move(whole);
  }
  log->end_ = std::ssize(all);
  LOCKSTEP_TRY(log->file_, file_system.open(path));
  LOCKSTEP_RETURN_IF_ERROR(log->file_->truncate(log->end_));
  return log;
}

void StepLog::write(std::string_view line) {
  if (taken_over_) return;
  pending_ += text(line, "\n");
  flush();
}

void StepLog::flush() {
  if (pending_.empty()) return;
  const auto written = write_pending();
  if (written.ok()) {
    if (std::exchange(warned_, false)) log_info(path_.string(), " is complete again");
    return;
  }
  if (!std::exchange(warned_, true))
    log_warning(path_.string(),
                ": cannot write step lines now, trying again later: ", written.error().message);
  if (pending_.size() < kMostPendingBytes) return;
  log_warning(path_.string(), ": dropped ", pending_.size(), " bytes of step lines");
  pending_.clear();
}

// A descriptor may be of no use for ever once the server has failed (ESTALE).
Result<void> StepLog::write_pending() {
  if (!file_) {
    LOCKSTEP_TRY(file_, file_system_.open(path_));
  }
  // Beyond our end stands only what a failed write of ours may have left.
  const auto size = file_->size_bytes();
  if (!warned_ && size.ok() && size.value() > end_) {
    taken_over_ = true;
    pending_.clear();
    log_warning(path_.string(),
                ": another run writes step lines here, so this run writes no more of them");
    return {};
  }
  const auto written = file_->write_at(as_bytes(pending_), end_);
  if (!written.ok()) {
    file_.reset();
    return written;
  }
  end_ += std::ssize(pending_);
  pending_.clear();
  return {};
}

const std::string* StepLog::first_loss_hex(int64_t step) const {
  const auto found = first_loss_hex_.find(step);
  return found == first_loss_hex_.end() ? nullptr : &found->second;
}

void StepLog::add(LoggedStep logged) {
  first_loss_hex_.emplace(logged.step, logged.loss_hex);
  steps_.push_back(std::move(logged));
}

}  // namespace lockstep::core
