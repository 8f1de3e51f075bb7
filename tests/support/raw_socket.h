// A plain blocking TCP or Unix socket for tests: what an attacker has.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/clock.h"

namespace lockstep::test_support {

class RawSocket {
 public:
  explicit RawSocket(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  explicit RawSocket(const std::string& path)
      : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    LOCKSTEP_CHECK(path.size() < sizeof address.sun_path, path);
    std::memcpy(address.sun_path, path.data(), path.size());
    connect(reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~RawSocket() {
    if (fd_ >= 0) ::close(fd_);
  }

  // False when the other side has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // What comes within `timeout_ms`, at most 64 KiB; empty: nothing, or closed.
  std::string receive(int timeout_ms) {
    pollfd wait{fd_, POLLIN, 0};
    std::string bytes(size_t{64} << 10, '\0');
    if (::poll(&wait, 1, timeout_ms) <= 0) return "";
    const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (n <= 0) closed_ = true;
    bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return bytes;
  }
  // Whether the other side closes within `timeout_ms`.
  bool wait_closed(int timeout_ms) {
    const int64_t deadline_ns = system_clock().monotonic_ns() + timeout_ms * int64_t{1'000'000};
    while (!closed_ && system_clock().monotonic_ns() < deadline_ns) receive(20);
    return closed_;
  }

 private:
  void connect(const sockaddr* address, socklen_t size) {
    LOCKSTEP_CHECK(fd_ >= 0 && ::connect(fd_, address, size) == 0, std::strerror(errno));
  }
  int fd_;
  bool closed_ = false;
};

// The descriptors of the sockets that this process has open.
inline std::set<int> open_sockets() {
  std::set<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry, gone).string().starts_with("socket:"))
      found.insert(std::stoi(entry.path().filename()));
  }
  return found;
}

}  // namespace lockstep::test_support
