// The pages of --status-endpoint: those of cli/status/status_pages.h, and the dashboard of the one
// run below /runs/.
#pragma once

#include <filesystem>

#include "base/clock.h"
#include "base/file_system.h"
#include "launcher/net/status_server.h"

namespace lockstep::cli {

// Borrows file system and clock.
launcher::net::StatusPages run_pages(FileSystem& file_system, Clock& clock,
                                     const std::filesystem::path& folder);

}  // namespace lockstep::cli
