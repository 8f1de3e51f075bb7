// The steps of one run as columns in memory, read from its metrics.jsonl while that grows. This is
// the index of the dashboard: 80 bytes a step, from which any stretch of any curve is drawn.
//
// A killed and resumed run redoes steps; the last record of a step counts. Lines that are damaged
// are passed over and counted.
// Thread: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "cli/serve/step_line.h"

namespace lockstep::cli {

// Where a generation began, as far as its steps were logged.
struct GenerationStart {
  int64_t generation = 0, world_size = 0;
  int64_t step = 0;  // the first one that it logged
};

enum class Axis { kSteps, kTokens, kSeconds };

class RunSeries {
 public:
  struct Limits {
    size_t max_steps = size_t{8} << 20;         // what comes after is counted
    size_t max_line_bytes = size_t{4} << 20;    // a longer one is damaged
    int64_t max_read_bytes = int64_t{1} << 30;  // a call of follow(); the next one goes on
  };
  RunSeries() : RunSeries(Limits{}) {}
  explicit RunSeries(Limits limits) : limits_(limits) {}

  // Reads what was added to `path` since the last call. A file that was replaced, by a resume that
  // set damaged lines aside, say, is read from its beginning. Errors: kNotFound, kIo; what was read
  // before stays.
  Result<void> follow(FileSystem& file_system, const std::filesystem::path& path);
  // The next bytes of the file. A last line without its newline waits for the rest.
  void add(std::string_view bytes);

  // Each step once, in the order of steps.
  std::span<const int64_t> steps() const { return steps_; }
  std::span<const float> column(Field field) const { return columns_[static_cast<size_t>(field)]; }
  // Of each step: its number, the tokens up to its end, or the seconds since the run's first step
  // began (pauses between generations among them).
  std::vector<double> axis(Axis axis) const;
  const std::vector<GenerationStart>& starts() const { return starts_; }
  int64_t damaged_lines() const { return damaged_; }
  int64_t redone_steps() const { return redone_; }
  int64_t skipped_updates() const { return skipped_; }
  int64_t passed_over_steps() const { return passed_over_; }
  double first_unix_s() const { return first_unix_s_; }
  // Of the newest record; NaN: there is none. Only phases that were logged.
  float last(Field field) const;

 private:
  void add_line(std::string_view line);
  void add_step(const StepLine& line);
  bool is_same_file(File& file) const;

  Limits limits_;
  std::vector<int64_t> steps_;
  std::vector<double> tokens_, unix_s_;  // of each step
  std::array<std::vector<float>, kFieldCount> columns_;
  std::vector<GenerationStart> starts_;
  int64_t damaged_ = 0, redone_ = 0, skipped_ = 0, passed_over_ = 0;
  double first_unix_s_ = 0;

  int64_t read_bytes_ = 0;  // of the file
  std::string pending_;     // the beginning of a line
  bool too_long_ = false;   // the line that pending_ began
  std::string tail_;        // the last bytes that were read: they tell a file that was replaced
};

}  // namespace lockstep::cli
