#include "launcher/net/dialer.h"

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "launcher/net/connection.h"

namespace lockstep::launcher::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int64_t kMaxRetryMs = 1000;
constexpr size_t kMaxDoublings = 8;

}  // namespace

Dialer::Dialer(asio::io_context& context, const NetworkLimits& limits, Endpoint to,
               std::string from, int64_t deadline_ns, double jitter)
    : limits_(limits),
      to_(std::move(to)),
      from_(std::move(from)),
      deadline_ns_(deadline_ns),
      jitter_(jitter),
      resolver_(context),
      socket_(context),
      timer_(context) {}

void Dialer::start(OnConnected on_connected, OnGivenUp on_given_up) {
  on_connected_ = std::move(on_connected);
  on_given_up_ = std::move(on_given_up);
  look_up();
}

int64_t Dialer::left_ms() const {
  return std::max<int64_t>(0, (deadline_ns_ - system_clock().monotonic_ns()) / kNsPerMs);
}

void Dialer::stop() {
  stopped_ = true;
  timer_.cancel();
  resolver_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

void Dialer::look_up() {
  error_code not_numeric;
  const auto address = asio::ip::make_address(to_.host, not_numeric);
  if (!not_numeric) {
    addresses_ = {Tcp::endpoint(address, to_.port)};
    return connect();
  }
  resolver_.async_resolve(
      to_.host, std::to_string(to_.port),
      [self = shared_from_this()](const error_code& error, Tcp::resolver::results_type found) {
        if (self->stopped_) return;
        self->addresses_.clear();
        for (const auto& each : found) self->addresses_.push_back(each.endpoint());
        if (self->addresses_.empty())
          return self->try_again(text("cannot resolve its name: ", error.message()));
        self->connect();
      });
}

void Dialer::connect() {
  const Tcp::endpoint to = addresses_[tries_ % addresses_.size()];
  error_code error;
  socket_ = Tcp::socket(socket_.get_executor());
  socket_.open(to.protocol(), error);
  if (!error) close_on_exec(socket_.native_handle());
  if (!error && !from_.empty()) {
    const auto from = asio::ip::make_address(from_, error);
    if (!error) socket_.bind(Tcp::endpoint(from, 0), error);
  }
  if (error) return try_again(error.message());
  set_tcp_options(socket_.native_handle(), limits_.silence_ms);
  timer_.expires_after(std::chrono::milliseconds(std::min(limits_.connect_ms, left_ms() + 1)));
  timer_.async_wait([self = shared_from_this()](const error_code& cancelled) {
    error_code ignored;
    if (!cancelled) self->socket_.close(ignored);  // ends the connect
  });
  socket_.async_connect(
      to, [self = shared_from_this()](const error_code& failure) { self->on_connect(failure); });
}

void Dialer::on_connect(const error_code& error) {
  if (stopped_) return;
  timer_.cancel();
  if (error == asio::error::operation_aborted || !socket_.is_open())
    return try_again(text("no answer within ", limits_.connect_ms, " ms"));
  if (error) return try_again(error.message());
  on_connected_(std::move(socket_));
}

void Dialer::try_again(const std::string& reason, End how) {
  const auto self = shared_from_this();  // who hears that we gave up drops us, and its own word
  const size_t doublings = std::min(tries_++, kMaxDoublings);
  const int64_t pause_ms = std::min(limits_.retry_ms << doublings, kMaxRetryMs);
  const auto spread_ms = static_cast<int64_t>(static_cast<double>(pause_ms) * (0.5 + jitter_));
  if (left_ms() == 0)
    return on_given_up_(text(to_.str(), ": gave up after ", tries_, " tries: ", reason), how);
  timer_.expires_after(std::chrono::milliseconds(std::min(spread_ms, left_ms())));
  timer_.async_wait([self = shared_from_this()](const error_code& cancelled) {
    if (!cancelled && !self->stopped_) self->look_up();
  });
}

}  // namespace lockstep::launcher::net
