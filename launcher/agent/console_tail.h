// Shows what worker rank 0 prints: follows the file that it writes its standard output to, and
// copies what is new to our standard output and to rank 0's log file. A file, not a pipe: however
// slow the agent, the terminal or the program behind `|` is, the worker never waits for them.
// Log lines among them (base/log.h's show_log_on_stdout) are in the log file already.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/file_system.h"

namespace lockstep::launcher {

// Owns its files. Borrows the file system.
class ConsoleTail {
 public:
  // Shows what is appended to `source` from now on; copies it to the end of `copy`. Errors: kIo.
  static Result<ConsoleTail> create(FileSystem& file_system, const std::filesystem::path& source,
                                    const std::filesystem::path& copy);
  // Shows what is new and fits without waiting. True: everything there was has been shown.
  bool pump();

 private:
  ConsoleTail(FileSystem& file_system, std::filesystem::path copy, std::unique_ptr<File> source,
              int64_t offset)
      : file_system_(&file_system),
        copy_(std::move(copy)),
        source_(std::move(source)),
        offset_(offset),
        copied_(offset) {}
  std::string unread(int64_t from);
  void append_to_log(const std::string& bytes);

  FileSystem* file_system_;
  std::filesystem::path copy_;
  std::unique_ptr<File> source_;
  int64_t offset_, copied_;
  bool console_gone_ = false;
};

}  // namespace lockstep::launcher
