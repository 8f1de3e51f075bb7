// How many files and sockets a process may have open. Its children inherit the limit.
#pragma once

namespace lockstep::launcher::net {

// Raises the soft limit to the hard one. The usual soft limit is 1024; a coordinator has a
// descriptor for each agent, and a rank one for each other rank of its node, and one for each rank
// that it exchanges tensors with over Gloo.
void raise_descriptor_limit();

}  // namespace lockstep::launcher::net
