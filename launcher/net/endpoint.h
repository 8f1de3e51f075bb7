// Where a connection ends, and which of this machine's addresses to use for it. No hostnames travel
// between nodes: an agent's address is the one that is seen on its connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace lockstep::launcher::net {

// "10.0.0.3:4711", "[fe80::1]:4711", "node7:29400".
struct Endpoint {
  std::string host;  // an address, or (only to dial) a name
  uint16_t port = 0;
  std::string str() const;
  bool operator==(const Endpoint&) const = default;
};
// HOST:PORT; the port may not be missing. Errors: kConfig.
Result<Endpoint> parse_endpoint(const std::string& words);
// The same with an address in place of a name. Where this machine's own name stands for a loopback
// address (127.0.1.1 in many an /etc/hosts), which no other machine can reach, it is the address of
// the default route. Errors: kNotFound (unknown name).
Result<Endpoint> resolved(const Endpoint& endpoint);

// Whether only this machine can reach this address; a name is no address.
bool is_loopback(const std::string& address);

// Whether one can listen at this address here, at some port. Requires: an address, no name.
bool is_own_address(const std::string& address);

// One of this machine's addresses, and the interface that has it.
struct LocalAddress {
  std::string interface, address;
};
// `wish` is an interface's name or one of this machine's addresses: that one. Empty: the address of
// the route to `toward`; without that, of the default route, else of the first interface that is up
// and not the loopback, else the loopback. Sends no packet; a name in `toward` is looked up.
// Errors: kConfig (no such interface or address), kNotFound (no route, unknown name).
Result<LocalAddress> choose_local_address(const std::string& wish,
                                          const std::optional<Endpoint>& toward);

}  // namespace lockstep::launcher::net
