// The pages that an agent serves about its run (launcher/net/status_server.h).
//
//   /             a page that shows the run and asks for /status.json again and again; its link to
//                 runs/ is for who serves a dashboard there (cli/serve/run_pages.h)
//   /status.json  what `lockstep status --json` prints
//   /metrics      the same numbers for Prometheus
#pragma once

#include <filesystem>

#include "base/clock.h"
#include "base/file_system.h"
#include "launcher/net/status_server.h"

namespace lockstep::cli {

// They read the run folder as `lockstep status` does. Before the first generation of the folder the
// last two have status 503. Borrows file system and clock.
launcher::net::StatusPages status_pages(FileSystem& file_system, Clock& clock,
                                        std::filesystem::path folder);

}  // namespace lockstep::cli
