// What a launcher's log says of the events of its run.
#pragma once

#include <cstdint>

#include "launcher/control/message.h"
#include "launcher/control/supervision.h"

namespace lockstep::launcher {

// `min_nodes`: that must be here.
void narrate(const Record& event, int64_t min_nodes);
// What a node runs that does not coordinate.
void narrate_ranks(const control::Order& order);
// How it ended. A stop that was asked for is no error.
void narrate_end(int exit_status, const std::string& reason);

}  // namespace lockstep::launcher
