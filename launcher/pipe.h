// Runs a program to its end with a text on its standard input; its standard error is ours.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::launcher {

struct ProgramOutput {
  int exit_status = 0;  // 128 + signal when it was killed by one
  std::string standard_output;
};
// Requires: `input` is small (it is written whole before the output is read). Errors: kNotFound,
// kIo.
Result<ProgramOutput> run_program(const std::filesystem::path& program,
                                  const std::vector<std::string>& arguments,
                                  const std::string& input);

}  // namespace lockstep::launcher
