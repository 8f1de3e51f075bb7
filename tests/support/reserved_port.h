// A port of the loopback at which nobody listens, and which no other program gets while this lives.
// A test may listen there (with SO_REUSEADDR, as all servers here do), and again after it closed.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace lockstep::test_support {

class ReservedPort {
 public:
  ReservedPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    const int on = 1;
    LOCKSTEP_CHECK(::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                       ::bind(fd_, reinterpret_cast<sockaddr*>(&at), size) == 0 &&
                       ::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size) == 0,
                   std::strerror(errno));
    port_ = ntohs(at.sin_port);
  }
  ~ReservedPort() { ::close(fd_); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;

  uint16_t port() const { return port_; }

 private:
  const int fd_;
  uint16_t port_ = 0;
};

}  // namespace lockstep::test_support
