// Runs a program to its end, but no longer than it may take.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/host/process.h"

namespace lockstep::cli {

// Nothing: it did not end in time; it was asked to stop, then killed.
std::optional<launcher::ExitStatus> wait_for(launcher::WorkerProcess& run, double limit_s);

// The environment of this process without what would make a program one rank of something larger.
Environment plain_environment();

// What `program` wrote to its standard output. Errors: kNotFound (no such program), kIo; kTimeout;
// kBug (it failed), with its last words.
Result<std::string> output_of(const std::filesystem::path& program,
                              const std::vector<std::string>& arguments, double limit_s);

}  // namespace lockstep::cli
