// Two runs in one folder would write the same logs and checkpoints.
#pragma once

#include <filesystem>
#include <string>

#include "base/clock.h"
#include "base/file_system.h"

namespace lockstep::launcher {

// Nothing of another run than ours writes into `dump_folder`. `job`: what its nodes call ours;
// empty: it has one node, and so has the other, on this machine. Between machines the other one is
// known by workers.json, which its coordinator publishes every `publish_ns`: where that names
// another job this takes so long. Errors: kConfig.
Result<void> nobody_else_runs(FileSystem& file_system, Clock& clock,
                              const std::filesystem::path& dump_folder, const std::string& job,
                              int64_t publish_ns);

}  // namespace lockstep::launcher
