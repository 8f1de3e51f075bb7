// What a launcher's log says of the events of its run.
#pragma once

#include <cstdint>

#include "launcher/control/events.h"

namespace lockstep::launcher::control {

// `min_nodes`: that must be here.
void log_event(const LoggedEvent& event, int64_t min_nodes);
// What a node runs that does not coordinate.
void log_ranks(const Order& order);
// How it ended. A stop that was asked for is no error.
void log_end(int exit_status, const std::string& reason);

}  // namespace lockstep::launcher::control
