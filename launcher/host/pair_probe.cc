#include "launcher/host/pair_probe.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/text.h"
#include "launcher/host/process.h"
#include "launcher/net/mac.h"

namespace lockstep::launcher::net {
namespace {

constexpr int kRounds = 16;
constexpr size_t kBlockBytes = size_t{256} << 10, kMostBytes = size_t{64} << 20;
constexpr double kSend_s = 0.3;
constexpr time_t kProberPatience_s = 5, kListenerPatience_s = 2;  // others may be before us
constexpr int64_t kHandshake_ns = 2'000'000'000;  // the word and all rounds together
constexpr int64_t kLook_ms = 20;                  // between two looks at whether it is over

// A socket that closes itself.
struct Socket {
  int fd;
  explicit Socket(int descriptor) : fd(descriptor) {}
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
};

// No names: an agent's address is a number.
Result<Address> address_of(const Endpoint& at) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &list) != 0)
    return Error{Code::kConfig, text("\"", at.host, "\" is not an address")};
  Address address;
  std::memcpy(&address.storage, list->ai_addr, list->ai_addrlen);
  address.size = list->ai_addrlen;
  ::freeaddrinfo(list);
  return address;
}

// Both timeouts; on Linux the one of sending is connect()'s as well.
void set_patience(int fd, time_t seconds) {
  const timeval limit{seconds, 0};
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool send_all(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(fd, bytes, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t got = ::recv(fd, bytes, size, 0);
    if (got == 0) errno = ECONNRESET;
    if (got <= 0) return false;
    bytes += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

// All of it until `deadline_ns`, however it is parted.
bool receive_by(int64_t deadline_ns, int fd, char* bytes, size_t size) {
  while (size > 0) {
    const int64_t left_ms = (deadline_ns - system_clock().monotonic_ns()) / 1'000'000;
    if (left_ms <= 0) return false;
    wait_readable({fd}, left_ms);
    const ssize_t got = ::recv(fd, bytes, size, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return false;
    bytes += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

// One prober, who is gone or done afterwards. Others wait meanwhile: who does not know the word
// holds them up until the handshake's deadline, however seldom a byte of his comes.
void answer(int fd, const std::string& word) {
  set_patience(fd, kListenerPatience_s);
  const int64_t deadline_ns = system_clock().monotonic_ns() + kHandshake_ns;
  std::vector<char> block(kBlockBytes);
  if (!receive_by(deadline_ns, fd, block.data(), word.size()) ||
      !same_bytes({block.data(), word.size()}, word))
    return;
  for (int round = 0; round < kRounds; ++round)
    if (!receive_by(deadline_ns, fd, block.data(), 1) || !send_all(fd, block.data(), 1)) return;
  size_t total = 0;
  ssize_t got;
  while (total <= kMostBytes && (got = ::recv(fd, block.data(), block.size(), 0)) > 0)
    total += static_cast<size_t>(got);
  send_all(fd, block.data(), 1);
}

Error lost(const Endpoint& to, const char* what) {
  const bool silent = errno == EAGAIN || errno == EINPROGRESS;
  return {Code::kPeerLost,
          text(what, " ", to.str(), ": ",
               silent ? text("no answer for ", kProberPatience_s, " s") : std::strerror(errno))};
}

double shortest_round_trip_s(Clock& clock, int fd) {
  double shortest = -1;
  for (int round = 0; round < kRounds; ++round) {
    char byte = 0;
    const double start = clock.monotonic_s();
    if (!send_all(fd, &byte, 1) || !receive_all(fd, &byte, 1)) return -1;
    const double seconds = clock.monotonic_s() - start;
    if (round == 0 || seconds < shortest) shortest = seconds;
  }
  return shortest;
}

double sent_bytes_per_s(Clock& clock, int fd) {
  const std::vector<char> zeros(kBlockBytes);
  const double start = clock.monotonic_s();
  size_t sent = 0;
  while (sent < kMostBytes && clock.monotonic_s() - start < kSend_s) {
    if (!send_all(fd, zeros.data(), zeros.size())) return -1;
    sent += zeros.size();
  }
  char byte;
  if (::shutdown(fd, SHUT_WR) != 0 || !receive_all(fd, &byte, 1)) return -1;
  return static_cast<double>(sent) / (clock.monotonic_s() - start);
}

}  // namespace

Result<std::unique_ptr<ProbeListener>> ProbeListener::open(const std::string& address,
                                                           std::string word) {
  if (word.empty() || word.size() > kBlockBytes)
    return Error{Code::kConfig, "probers must know a word"};
  LOCKSTEP_TRY(Address at, address_of({address, 0}));
  Socket socket(::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd < 0 || ::bind(socket.fd, at.raw(), at.size) != 0 ||
      ::listen(socket.fd, SOMAXCONN) != 0 || ::getsockname(socket.fd, at.raw(), &at.size) != 0)
    return Error{Code::kIo, text("cannot listen at ", address, ": ", std::strerror(errno))};
  const in_port_t port = at.storage.ss_family == AF_INET
                             ? reinterpret_cast<sockaddr_in*>(at.raw())->sin_port
                             : reinterpret_cast<sockaddr_in6*>(at.raw())->sin6_port;
  return std::unique_ptr<ProbeListener>(new ProbeListener(
      std::exchange(socket.fd, -1), Endpoint{address, ntohs(port)}, std::move(word)));
}

ProbeListener::ProbeListener(int fd, Endpoint at, std::string word)
    : fd_(fd), at_(std::move(at)), word_(std::move(word)), thread_([this] { serve(); }) {}

ProbeListener::~ProbeListener() {
  over_ = true;
  thread_.join();
  ::close(fd_);
}

void ProbeListener::serve() {
  while (!over_) {
    wait_readable({fd_}, kLook_ms);
    const Socket prober(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC));
    if (prober.fd >= 0) answer(prober.fd, word_);
  }
}

Result<PairFigures> probe_pair(Clock& clock, const std::string& from, const Endpoint& to,
                               const std::string& word) {
  LOCKSTEP_TRY(Address local, address_of({from, 0}));
  LOCKSTEP_TRY(Address peer, address_of(to));
  const Socket socket(::socket(peer.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.fd < 0) return lost(to, "socket to");
  set_patience(socket.fd, kProberPatience_s);
  if (::bind(socket.fd, local.raw(), local.size) != 0 ||
      ::connect(socket.fd, peer.raw(), peer.size) != 0)
    return lost(to, "cannot connect to");
  PairFigures figures;
  if (send_all(socket.fd, word.data(), word.size()))
    figures.round_trip_s = shortest_round_trip_s(clock, socket.fd);
  if (figures.round_trip_s < 0) return lost(to, "no round trip with");
  figures.bytes_per_s = sent_bytes_per_s(clock, socket.fd);
  if (figures.bytes_per_s < 0) return lost(to, "the transfer broke off to");
  return figures;
}

}  // namespace lockstep::launcher::net
