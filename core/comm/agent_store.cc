#include "core/comm/agent_store.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "base/byte_codec.h"
#include "base/clock.h"
#include "base/text.h"
#include "worker_link/store_wire.h"

namespace lockstep::core {
namespace {

using Milliseconds = std::chrono::milliseconds;
constexpr size_t kNamedKeys = 3;  // in a message
constexpr char kGone[] = "the agent of this node is gone: its store does not answer";

[[noreturn]] void fail(const std::string& what) { C10_THROW_ERROR(DistStoreError, what); }

std::string words(const StoreRequest& request) {
  static constexpr const char* kNames[] = {"?",     "set",  "get",    "add",  "compare and set",
                                           "check", "wait", "delete", "count"};
  std::string line = text("store: ", kNames[static_cast<size_t>(request.operation)]);
  for (size_t i = 0; i < request.keys.size() && i < kNamedKeys; ++i)
    line += text(i == 0 ? " \"" : ", \"", request.keys[i], "\"");
  if (request.keys.size() > kNamedKeys) line += text(", … (", request.keys.size(), " keys)");
  return line;
}

// One connection to the agent. Its calls throw; it is not used again then.
class Socket {
 public:
  explicit Socket(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
      fail(text("this path is too long for a socket: ", path));
    std::memcpy(address.sun_path, path.data(), path.size());
    if (fd_ < 0 || ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      fail(text("cannot connect to the agent of this node at ", path, ": ", std::strerror(errno)));
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }

  void write(std::string_view bytes, int64_t deadline_ns) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno != EAGAIN && errno != EINTR) fail(text(kGone, ": ", std::strerror(errno)));
      if (n < 0)
        await(POLLOUT, deadline_ns);
      else
        bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  std::string read(size_t size, int64_t deadline_ns) {
    std::string bytes(size, '\0');
    for (size_t got = 0; got < size;) {
      const ssize_t n = ::recv(fd_, bytes.data() + got, size - got, MSG_DONTWAIT);
      if (n == 0) fail(kGone);
      if (n < 0 && errno != EAGAIN && errno != EINTR) fail(text(kGone, ": ", std::strerror(errno)));
      if (n < 0)
        await(POLLIN, deadline_ns);
      else
        got += static_cast<size_t>(n);
    }
    return bytes;
  }

 private:
  void await(short event, int64_t deadline_ns) {
    const int64_t left_ms = (deadline_ns - system_clock().monotonic_ns()) / kNsPerMs;
    pollfd wait{fd_, event, 0};
    if (left_ms < 0) fail("the store did not answer within its timeout");
    // Rounded up by one; interrupted, the caller comes again.
    (void)::poll(&wait, 1, static_cast<int>(std::min<int64_t>(left_ms + 1, 60'000)));
  }
  int fd_;
};

using Bytes = std::vector<uint8_t>;
std::string to_text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }
Bytes to_bytes(const std::string& words) { return {words.begin(), words.end()}; }

class AgentStore : public c10d::Store {
 public:
  AgentStore(std::string path, std::string space, Milliseconds timeout)
      : Store(timeout), path_(std::move(path)), space_(std::move(space)) {}

  c10::intrusive_ptr<Store> clone() override { return make_agent_store(path_, space_, timeout_); }
  using Store::compareSet;
  using Store::set;
  void set(const std::string& key, const Bytes& value) override {
    call(StoreOperation::kSet, {key}, {to_text(value)});
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return to_bytes(
        call(StoreOperation::kCompareSet, {key}, {to_text(expected), to_text(desired)}).text);
  }
  Bytes get(const std::string& key) override {
    return to_bytes(call(StoreOperation::kGet, {key}).text);
  }
  int64_t add(const std::string& key, int64_t value) override {
    return call(StoreOperation::kAdd, {key}, {}, value).number;
  }
  bool deleteKey(const std::string& key) override {
    return call(StoreOperation::kDelete, {key}).number != 0;
  }
  bool check(const std::vector<std::string>& keys) override {
    return call(StoreOperation::kCheck, keys).number != 0;
  }
  int64_t getNumKeys() override { return call(StoreOperation::kCount, {}).number; }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const Milliseconds& timeout) override {
    ask({StoreOperation::kWait, 0, space_, keys, {}}, timeout);
  }

 private:
  StoreAnswer call(StoreOperation operation, std::vector<std::string> keys,
                   std::vector<std::string> values = {}, int64_t number = 0) {
    return ask({operation, number, space_, std::move(keys), std::move(values)}, timeout_);
  }

  StoreAnswer ask(const StoreRequest& request, Milliseconds timeout) {
    const int64_t deadline_ns = system_clock().monotonic_ns() + timeout.count() * kNsPerMs;
    try {
      const std::string bytes = encode(request);
      if (bytes.size() > kStoreMaxBytes)
        fail(text("the request is too large: ", bytes_text(bytes.size())));
      Socket socket = take_idle();
      ByteWriter frame;
      frame.text(bytes);
      socket.write(frame.take(), deadline_ns);
      const auto size = ByteReader(socket.read(sizeof(uint32_t), deadline_ns)).number<uint32_t>();
      if (size > kStoreMaxBytes) fail(text("the answer is too large: ", size, " bytes"));
      auto answer = decode_store_answer(socket.read(size, deadline_ns));
      if (!answer) fail(answer.error().message);
      if (answer->status != StoreStatus::kOk) fail(answer->text);
      put_back(std::move(socket));
      return std::move(answer).value();
    } catch (const c10::DistStoreError& e) {  // a connection with an answer due goes with it
      const std::string reason = e.msg();
      fail(text(words(request), ": ", reason, " (timeout ",
                fixed(static_cast<double>(timeout.count()) * 1e-3, 1), " s)"));
    }
  }

  Socket take_idle() {
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        Socket socket = std::move(idle_.back());
        idle_.pop_back();
        return socket;
      }
    }
    return Socket(path_);
  }
  void put_back(Socket socket) {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(socket));
  }

  const std::string path_, space_;
  std::mutex mutex_;
  std::vector<Socket> idle_;  // no request under way on these
};

}  // namespace

c10::intrusive_ptr<c10d::Store> make_agent_store(const std::string& socket_path,
                                                 const std::string& space, Milliseconds timeout) {
  return c10::make_intrusive<AgentStore>(socket_path, space, timeout);
}

}  // namespace lockstep::core
