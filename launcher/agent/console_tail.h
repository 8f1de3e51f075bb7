// Shows what worker rank 0 prints: follows the file that it writes its standard output to, and
// copies what is new to our standard output and to rank 0's log file. A file, not a pipe: however
// slow the agent, the terminal or the program behind `|` is, the worker never waits for them.
// Log lines among them (base/log.h's show_log_on_stdout) are in the log file already.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/file_system.h"

namespace lockstep::launcher {

// Owns its files. Borrows the file system.
class ConsoleTail {
 public:
  // Shows what `source` has behind `from`, nothing: what is appended from the first pump on; copies
  // it to the end of `copy`.
  ConsoleTail(FileSystem& file_system, std::filesystem::path source, std::filesystem::path copy,
              std::optional<int64_t> from)
      : file_system_(file_system), path_(std::move(source)), copy_(std::move(copy)), from_(from) {}
  const std::filesystem::path& source() const { return path_; }
  // Shows what is new and fits without waiting. True: everything there was has been shown.
  bool pump();

 private:
  bool is_open();
  void append_to_log(const std::string& bytes);

  FileSystem& file_system_;
  const std::filesystem::path path_, copy_;
  const std::optional<int64_t> from_;
  std::unique_ptr<File> source_;  // from the first pump on
  int64_t offset_ = 0, copied_ = 0;
  bool console_gone_ = false;
};

}  // namespace lockstep::launcher
