// The first step of an agent among several.
#pragma once

#include <filesystem>

#include "base/clock.h"
#include "base/file_system.h"
#include "launcher/agent/agent_options.h"
#include "launcher/control/rendezvous.h"
#include "launcher/host/process.h"

namespace lockstep::launcher {

// The rendezvous that `nodes` name. A host whose name has no address yet is looked up again for
// join_s. Errors: kConfig (it had none until then), kAborted (a signal asked to stop), and those of
// Rendezvous::create.
Result<control::Rendezvous> find_rendezvous(FileSystem& file_system, Clock& clock,
                                            const NodesOptions& nodes,
                                            const std::filesystem::path& folder,
                                            StopSignals& signals);

}  // namespace lockstep::launcher
