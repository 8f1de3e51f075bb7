// StepLog: metrics.jsonl, a line a step, appended to across restarts. No Torch.
// A log never stops a run: lines that are not ours (a torn write, a flipped bit) are set aside in
// metrics.damaged.jsonl beside it, with a warning, and the log goes on without them. Lines that
// cannot be written are kept, and written with a later one. Lines of another run that started in
// the same folder are never overwritten: this log then ends.
// Thread: the training thread, but for write and flush, which may be another's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::core {

struct LoggedStep {  // what a later generation needs of a line
  int64_t step = 0;
  std::string loss_hex;
  double t = 0, step_time_s = 0, tokens = 0, data_wait_s = 0;
  int64_t generation = 0, world_size = 0;
};

class StepLog {
 public:
  // Reads what earlier generations wrote; what follows the last newline was cut off by a kill, and
  // goes. Errors: kIo, kDenied, kNoSpace.
  static Result<std::unique_ptr<StepLog>> open(FileSystem& file_system,
                                               const std::filesystem::path& path);
  void add(LoggedStep logged);
  // The JSON object of a step that was added, without its newline. A full disk is a warning.
  void write(std::string_view line);
  // Tries once more to write what could not be written.
  void flush();
  const std::vector<LoggedStep>& steps() const { return steps_; }  // in the order of the file
  // The loss logged when `step` was done first; null: it is new.
  const std::string* first_loss_hex(int64_t step) const;

 private:
  StepLog(FileSystem& file_system, std::filesystem::path path)
      : file_system_(file_system), path_(std::move(path)) {}
  Result<void> write_pending();

  FileSystem& file_system_;
  const std::filesystem::path path_;
  std::unique_ptr<File> file_;  // null: it has failed, and is opened again
  std::string pending_;         // lines that are not written
  bool warned_ = false;         // of them
  bool taken_over_ = false;     // another run has written to the file
  int64_t end_ = 0;
  std::vector<LoggedStep> steps_;
  std::map<int64_t, std::string> first_loss_hex_;
};

}  // namespace lockstep::core
