// Runs a program to its end, or to a deadline, with a text on its standard input; its standard
// error is ours.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::launcher {

struct ProgramOutput {
  int exit_status = 0;  // 128 + signal when it was killed by one
  std::string standard_output;
};
// A name without a slash is looked for in PATH. One that still runs after `timeout_ms` (0: never)
// is killed.
// Requires: `input` is small (it is written whole before the output is read). Errors: kNotFound,
// kTimeout, kIo.
Result<ProgramOutput> run_program(const std::filesystem::path& program,
                                  const std::vector<std::string>& arguments,
                                  const std::string& input, int64_t timeout_ms = 0);

}  // namespace lockstep::launcher
