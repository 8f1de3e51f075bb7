// Where the processes of this node write what they say: the run's log files. Where the storage of
// one does not answer, a file of this node's own takes its place, whose lines are appended to the
// log when the storage is back. So no process waits for it to start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/task_thread.h"

namespace lockstep::launcher {

struct LogPlace {
  std::filesystem::path log;     // the run's
  std::filesystem::path file;    // what is written to: `log`, or the file in its place
  std::optional<int64_t> start;  // its size when it was asked for; nothing: not known
};

// Borrows the file system. Thread: one, besides its own, whose signals are those of the thread that
// constructs this.
class LogFiles {
 public:
  // `folder`: this node's own.
  LogFiles(FileSystem& file_system, std::filesystem::path folder)
      : file_system_(file_system), folder_(std::move(folder)) {}
  ~LogFiles();  // Appends what is left, and waits for the storage.

  // Makes a file that is missing. `now`: where its writer writes already, if there is one: he goes
  // on there where that stands for the same log. Waits for storage for a second at most.
  LogPlace place(const std::filesystem::path& log, const LogPlace& now = {});
  // Up to `count` last lines since the place's start; none while the storage does not answer.
  std::vector<std::string> last_lines(const LogPlace& place, size_t count);
  // Appends the whole lines that came since, where files stand for logs. Does not wait.
  void follow();

 private:
  struct StandIn {
    std::filesystem::path log, file;
    int64_t copied = 0;
  };
  std::optional<int64_t> size_when_open(const std::filesystem::path& file);
  void append(StandIn& from, bool all);

  FileSystem& file_system_;
  const std::filesystem::path folder_;
  std::vector<std::shared_ptr<StandIn>> stand_ins_;
  TaskThread tasks_;  // The last member: it ends first.
};

}  // namespace lockstep::launcher
