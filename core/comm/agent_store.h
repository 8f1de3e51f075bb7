// The ranks' store over the Unix socket of this node's agent (worker_link/store_wire.h), which asks
// the coordinator: so that no worker listens, and none of an older generation gets an answer.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>
#include <string_view>

namespace c10d {
class Store;
}

namespace lockstep::core {

inline constexpr std::string_view kAgentStore = "agent:";  // begins LOCKSTEP_STORE

// `space` names the generation; keys of other ones are out of reach. Every call ends within the
// store's timeout. It throws c10::DistStoreError, which says what was asked and why it failed: the
// agent is gone, the request is refused (this generation is over), or no answer came in time.
// Thread-safe: each call under way has a connection of its own.
c10::intrusive_ptr<c10d::Store> make_agent_store(const std::string& socket_path,
                                                 const std::string& space,
                                                 std::chrono::milliseconds timeout);

}  // namespace lockstep::core
