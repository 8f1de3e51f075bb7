#include "launcher/net/endpoint.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/number.h"
#include "base/text.h"

namespace lockstep::launcher::net {
namespace {

// Reserved for documentation (RFC 5737): nobody is there, so its route is the default route.
constexpr char kNowhere[] = "192.0.2.1";
constexpr uint16_t kAnyPort = 9;

// "" when it is neither IPv4 nor IPv6.
std::string address_text(const sockaddr* address) {
  if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6))
    return "";
  char words[NI_MAXHOST];
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return ::getnameinfo(address, size, words, sizeof words, nullptr, 0, NI_NUMERICHOST) == 0 ? words
                                                                                            : "";
}

struct Interface {
  LocalAddress at;
  bool loopback = false, v4 = false;
};

// Those that are up, an entry an address, IPv4 first.
std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<Interface> found;
  for (const bool v4 : {true, false})
    for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
      const std::string address = address_text(each->ifa_addr);
      if (address.empty() || (each->ifa_flags & IFF_UP) == 0) continue;
      if ((each->ifa_addr->sa_family == AF_INET) != v4) continue;
      found.push_back({{each->ifa_name, address}, (each->ifa_flags & IFF_LOOPBACK) != 0, v4});
    }
  return found;
}

struct Resolved {
  sockaddr_storage address{};
  socklen_t size = 0;
};

Result<Resolved> resolve(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  const int error =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (error != 0) return Error{Code::kNotFound, text(endpoint.host, ": ", ::gai_strerror(error))};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  Resolved found;
  std::memcpy(&found.address, list->ai_addr, list->ai_addrlen);
  found.size = list->ai_addrlen;
  return found;
}

// connect() on a datagram socket asks for the route and sends nothing.
Result<std::string> source_address(const Endpoint& toward) {
  LOCKSTEP_TRY(Resolved peer, resolve(toward));
  auto* const address = reinterpret_cast<sockaddr*>(&peer.address);
  const int fd = ::socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Error{Code::kIo, text("socket: ", std::strerror(errno))};
  const bool routed =
      ::connect(fd, address, peer.size) == 0 && ::getsockname(fd, address, &peer.size) == 0;
  const int error = errno;
  ::close(fd);
  if (!routed)
    return Error{Code::kNotFound, text("no route to ", toward.host, ": ", std::strerror(error))};
  return address_text(address);
}

LocalAddress with_interface(const std::vector<Interface>& all, const std::string& address) {
  for (const Interface& each : all)
    if (each.at.address == address) return each.at;
  return {"", address};
}

}  // namespace

std::string Endpoint::str() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? text("[", host, "]:", port) : text(host, ":", port);
}

Result<Endpoint> parse_endpoint(const std::string& words) {
  const size_t colon = words.rfind(':');
  Endpoint endpoint;
  bool good = colon != std::string::npos && colon > 0;
  if (good) {
    endpoint.host = words.substr(0, colon);
    const auto port = parse_number<uint16_t>(std::string_view(words).substr(colon + 1));
    good = port.has_value();
    endpoint.port = port.value_or(0);
  }
  if (endpoint.host.starts_with('[') && endpoint.host.ends_with(']'))
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  else if (endpoint.host.find(':') != std::string::npos)
    good = false;
  if (!good || endpoint.host.empty())
    return Error{Code::kConfig, text("\"", words,
                                     "\" is not HOST:PORT (an IPv6 address goes in "
                                     "brackets)")};
  return endpoint;
}

Result<Endpoint> resolved(const Endpoint& endpoint) {
  LOCKSTEP_TRY(const Resolved found, resolve(endpoint));
  Endpoint at = endpoint;
  at.host = address_text(reinterpret_cast<const sockaddr*>(&found.address));
  const bool loopback = at.host.starts_with("127.") || at.host == "::1";
  if (!loopback || at.host == endpoint.host || endpoint.host == "localhost") return at;
  LOCKSTEP_TRY(const LocalAddress own, choose_local_address("", std::nullopt));
  at.host = own.address;
  return at;
}

bool is_loopback(const std::string& address) {
  constexpr uint32_t kNet = 127;
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == kNet;
  return ::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool is_own_address(const std::string& address) {
  const auto found = resolve({address, 0});
  if (!found) return false;
  const auto* const at = reinterpret_cast<const sockaddr*>(&found.value().address);
  const int fd = ::socket(at->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool bound = ::bind(fd, at, found.value().size) == 0;
  ::close(fd);
  return bound;
}

Result<LocalAddress> choose_local_address(const std::string& wish,
                                          const std::optional<Endpoint>& toward) {
  const std::vector<Interface> all = interfaces();
  if (!wish.empty()) {
    for (const Interface& each : all)
      if (each.at.interface == wish || each.at.address == wish) return each.at;
    std::string known;
    for (const Interface& each : all) known += text(" ", each.at.interface, "=", each.at.address);
    return Error{Code::kConfig, text("--local-addr: no interface is called \"", wish,
                                     "\" or has that address; "
                                     "this machine has",
                                     known)};
  }
  auto source = source_address(toward ? *toward : Endpoint{kNowhere, kAnyPort});
  if (source) return with_interface(all, *source);
  if (toward) return source.error();
  for (const bool loopback : {false, true})
    for (const Interface& each : all)
      if (each.loopback == loopback && each.v4) return each.at;
  return Error{Code::kNotFound,
               "this machine has no network interface that is up and has an address"};
}

}  // namespace lockstep::launcher::net
