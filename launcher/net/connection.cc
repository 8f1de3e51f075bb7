#include "launcher/net/connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>

#include "base/check.h"

namespace lockstep::launcher::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int kReadsPerTurn = 4;  // then the others
constexpr size_t kBuffersPerWrite = 16;
constexpr size_t kMaxGoodbyeBytes = 300;
constexpr int kKeepAliveProbes = 3;

bool would_block(const error_code& error) {
  return error == asio::error::would_block || error == asio::error::try_again;
}

void set_option(int descriptor, int level, int option, int value) {
  // One that this kernel lacks only makes a loss be noticed later.
  (void)::setsockopt(descriptor, level, option, &value, sizeof value);
}

}  // namespace

void set_tcp_options(int descriptor, int64_t silence_ms) {
  const int silence_s = static_cast<int>(std::max<int64_t>(1, silence_ms / 1000));
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, silence_s);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, silence_s);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence_ms));
}

void close_on_exec(int descriptor) { (void)::fcntl(descriptor, F_SETFD, FD_CLOEXEC); }

Connection::Connection(Events& events, Socket socket, Channel channel, Identity identity,
                       const NetworkLimits& limits, std::span<char> scratch)
    : events_(events),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      channel_(std::move(channel)),
      identity_(std::move(identity)),
      limits_(limits),
      scratch_(scratch) {}

void Connection::start() {
  error_code error;
  socket_.non_blocking(true, error);
  if (error) return end(error.message());
  if (!open())
    after(limits_.handshake_ms,
          text("it did not authenticate within ", limits_.handshake_ms, " ms"));
  take_in({});
  if (!ended_) arm_read();
}

void Connection::after(int64_t ms, const std::string& reason) {
  timer_.expires_after(std::chrono::milliseconds(ms));
  timer_.async_wait([self = shared_from_this(), reason](const error_code& error) {
    if (!error) self->end(reason);
  });
}

void Connection::arm_read() {
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& error) {
    if (!error && !self->ended_) self->read();
  });
}

void Connection::arm_write() {
  if (std::exchange(write_armed_, true)) return;
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const error_code& error) {
    self->write_armed_ = false;
    if (!error && !self->ended_) self->flush();
  });
}

void Connection::read() {
  for (int turn = 0; turn < kReadsPerTurn && !ended_; ++turn) {
    error_code error;
    const size_t n = socket_.read_some(asio::buffer(scratch_.data(), scratch_.size()), error);
    if (would_block(error)) break;
    if (error == asio::error::eof)
      return end(open()
                     ? "it closed the connection"
                     : "it closed the connection before it authenticated: its secret may differ");
    if (error) return end(error.message());
    if (!closing_) take_in({scratch_.data(), n});
  }
  if (!ended_) arm_read();
}

void Connection::take_in(std::string_view bytes) {
  const Result<void> taken = channel_.on_bytes(bytes);
  enqueue(channel_.take_output());
  if (ended_) return;
  if (open() && !std::exchange(told_open_, true)) {
    timer_.cancel();
    events_.on_open(*this);
  }
  deliver();
  if (taken.ok()) return;
  const bool other_secret = taken.error().code == Code::kDenied;
  end(taken.error().message, other_secret ? End::kOtherSecret : End::kBrokenRules);
}

void Connection::deliver() {
  while (!ended_ && !closing_) {
    auto frame = channel_.take_frame();
    if (!frame) return;
    if (frame->kind == FrameKind::kGoodbye)
      return end(text("it closed the connection: ", frame->payload));
    events_.on_frame(*this, std::move(frame->payload));
  }
}

void Connection::send(std::string_view payload) {
  LOCKSTEP_CHECK(open());
  if (!ended_ && !closing_) enqueue(channel_.seal(FrameKind::kPayload, payload));
}

void Connection::enqueue(std::string bytes) {
  if (bytes.empty()) return;
  queued_bytes_ += bytes.size();
  queue_.push_back(std::move(bytes));
  if (!write_armed_) flush();
  if (!ended_ && queued_bytes_ > limits_.max_queue_bytes)
    end(text("it does not read what it is sent: ", bytes_text(queued_bytes_), " are queued"));
}

void Connection::flush() {
  while (!queue_.empty()) {
    std::array<asio::const_buffer, kBuffersPerWrite> buffers;
    size_t count = 0;
    for (const std::string& each : queue_) {
      if (count == buffers.size()) break;
      buffers[count++] = asio::buffer(each);
    }
    buffers[0] += written_;
    error_code error;
    size_t n = socket_.write_some(std::span(buffers).first(count), error);
    if (would_block(error)) return arm_write();
    if (error) return end(error.message());
    queued_bytes_ -= n;
    written_ += n;
    while (!queue_.empty() && written_ >= queue_.front().size()) {
      written_ -= queue_.front().size();
      queue_.pop_front();
    }
  }
  error_code ignored;
  if (closing_) socket_.shutdown(Socket::shutdown_send, ignored);
}

// The peer's end of the stream is awaited: closing with bytes unread would reset the connection,
// and the peer would lose the last ones.
void Connection::close(const std::string& reason) {
  if (ended_ || std::exchange(closing_, true)) return;
  if (!open()) return end(reason);
  after(limits_.linger_ms, reason);
  const std::string_view words = std::string_view(reason).substr(0, kMaxGoodbyeBytes);
  if (identity_.via == Via::kLocal)
    flush();
  else
    enqueue(channel_.seal(FrameKind::kGoodbye, words));
}

void Connection::end(const std::string& reason, End how) {
  if (std::exchange(ended_, true)) return;
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
  if (!closing_) events_.on_end(*this, text(identity_.name, ": ", reason), how);
}

}  // namespace lockstep::launcher::net
