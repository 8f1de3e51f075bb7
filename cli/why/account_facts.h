// Reads what a run folder says of what happened to the run.
#pragma once

#include <filesystem>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/result.h"
#include "cli/why/account.h"

namespace lockstep::cli {

// The account of the run in `folder`, with the last lines of the log of the rank that failed.
// Errors: those of RunObserver::look.
Result<Account> read_account(FileSystem& file_system, Clock& clock,
                             const std::filesystem::path& folder);

}  // namespace lockstep::cli
