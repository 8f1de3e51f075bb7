// Programs that take a text on their standard input; their standard error is ours. One is run to
// its end, or to a deadline; another answers line by line.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::launcher {

struct ProgramOutput {
  int exit_status = 0;  // 128 + signal when it was killed by one
  std::string standard_output;
};
// Is shown what a program prints, piece by piece as it comes, and nothing at all when a signal
// interrupts the wait for more. The first false asks the program to end (SIGTERM).
using OutputWatcher = std::function<bool(std::string_view)>;

// A name without a slash is looked for in PATH. One that still runs after `timeout_ms` (0: never)
// is killed. It inherits our environment but for the variables `without`.
// Requires: `input` is small (it is written whole before the output is read). Errors: kNotFound,
// kTimeout, kIo (also when another thread of ours took its exit status, as reap_orphans may).
Result<ProgramOutput> run_program(const std::filesystem::path& program,
                                  const std::vector<std::string>& arguments,
                                  const std::string& input, int64_t timeout_ms = 0,
                                  const OutputWatcher& watch = {},
                                  const std::vector<std::string>& without = {});

// A program that answers each line with a line, until its standard input ends. Owns the process:
// destruction kills it. Thread: one at a time.
class LineProgram {
 public:
  // A name without a slash is looked for in PATH. Errors: kNotFound, kIo.
  static Result<LineProgram> start(const std::filesystem::path& program,
                                   const std::vector<std::string>& arguments);
  LineProgram(LineProgram&& other) noexcept;
  LineProgram& operator=(LineProgram&&) = delete;
  ~LineProgram();

  // Requires: no line end in `line`; no error before. Errors: kTimeout; kIo, it has ended.
  Result<std::string> ask(const std::string& line, int64_t timeout_ms);

 private:
  LineProgram(pid_t pid, int input, int output) : pid_(pid), input_(input), output_(output) {}
  pid_t pid_;
  int input_, output_;
};

}  // namespace lockstep::launcher
