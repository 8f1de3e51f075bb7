#include "cli/serve/run_series.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::cli {
namespace {

constexpr int64_t kReadBytes = int64_t{4} << 20;  // at once
constexpr size_t kTailBytes = 256;                // more than two lines have in common

}  // namespace

bool RunSeries::is_same_file(File& file) const {
  const auto size = file.size_bytes();
  if (!size || size.value() < read_bytes_) return false;
  std::string now(tail_.size(), '\0');
  const int64_t at = read_bytes_ - std::ssize(tail_);
  return file.read_at(std::as_writable_bytes(std::span(now)), at).ok() && now == tail_;
}

Result<void> RunSeries::follow(FileSystem& file_system, const std::filesystem::path& path) {
  LOCKSTEP_TRY(const auto file, file_system.open(path));
  if (!is_same_file(*file)) *this = RunSeries(limits_);
  LOCKSTEP_TRY(const int64_t size, file->size_bytes());
  const int64_t end = std::min(size, read_bytes_ + limits_.max_read_bytes);
  std::string bytes;
  while (read_bytes_ < end) {
    bytes.resize(static_cast<size_t>(std::min(kReadBytes, end - read_bytes_)));
    LOCKSTEP_RETURN_IF_ERROR(file->read_at(std::as_writable_bytes(std::span(bytes)), read_bytes_));
    read_bytes_ += std::ssize(bytes);
    add(bytes);
    tail_ += bytes;
    tail_.erase(0, tail_.size() - std::min(tail_.size(), kTailBytes));
  }
  return {};
}

void RunSeries::add(std::string_view bytes) {
  for (;;) {
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (pending_.size() + part.size() > limits_.max_line_bytes) {
      too_long_ = true;
      pending_.clear();
    }
    if (end == bytes.npos) {
      if (!too_long_) pending_ += part;
      return;
    }
    if (too_long_) {
      ++damaged_;
    } else if (pending_.empty()) {
      add_line(part);
    } else {
      pending_ += part;
      add_line(pending_);
    }
    too_long_ = false;
    pending_.clear();
    bytes.remove_prefix(end + 1);
  }
}

void RunSeries::add_line(std::string_view line) {
  if (line.empty()) return;
  const auto parsed = parse_step_line(line);
  if (parsed)
    add_step(*parsed);
  else
    ++damaged_;
}

void RunSeries::add_step(const StepLine& line) {
  const auto place = steps_.empty() || steps_.back() < line.step
                         ? steps_.end()
                         : std::lower_bound(steps_.begin(), steps_.end(), line.step);
  const auto at = place - steps_.begin();
  const bool known = place != steps_.end() && *place == line.step;
  if (!known && steps_.size() >= limits_.max_steps) {
    ++passed_over_;
    return;
  }
  if (steps_.empty())
    first_unix_s_ =
        line.unix_s - std::max(0.0F, line.values[static_cast<size_t>(Field::kStepTime)]);
  if (!known) {
    steps_.insert(place, line.step);
    tokens_.insert(tokens_.begin() + at, 0);
    unix_s_.insert(unix_s_.begin() + at, 0);
    for (auto& column : columns_) column.insert(column.begin() + at, 0);
  }
  redone_ += known ? 1 : 0;
  skipped_ += line.skipped ? 1 : 0;
  tokens_[static_cast<size_t>(at)] = line.tokens;
  unix_s_[static_cast<size_t>(at)] = line.unix_s;
  for (size_t i = 0; i < kFieldCount; ++i) columns_[i][static_cast<size_t>(at)] = line.values[i];
  if (starts_.empty() || starts_.back().generation != line.generation)
    starts_.push_back({line.generation, line.world_size, line.step});
}

std::vector<double> RunSeries::axis(Axis axis) const {
  std::vector<double> places(steps_.size());
  double tokens = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    tokens += tokens_[i];
    if (axis == Axis::kSteps) places[i] = static_cast<double>(steps_[i]);
    if (axis == Axis::kTokens) places[i] = tokens;
    if (axis == Axis::kSeconds)  // a clock that was set back does not turn a curve round
      places[i] = std::max(unix_s_[i] - first_unix_s_, i == 0 ? 0.0 : places[i - 1]);
  }
  return places;
}

float RunSeries::last(Field field) const {
  const auto values = column(field);
  for (size_t i = values.size(); i > 0; --i)
    if (std::isfinite(values[i - 1])) return values[i - 1];
  return std::numeric_limits<float>::quiet_NaN();
}

}  // namespace lockstep::cli
