// One outgoing connection in the making: looks the name up, connects, tries again until its
// deadline.
// Thread: the io_context's one.
#pragma once

#include <utility>  // before Asio, which forgets it

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/net/connection_event.h"

namespace lockstep::launcher::net {

class Dialer : public std::enable_shared_from_this<Dialer> {
 public:
  using Tcp = boost::asio::ip::tcp;
  // A socket that is connected, nothing said on it yet.
  using OnConnected = std::function<void(Tcp::socket)>;
  // `last`: how its last try ended.
  using OnGivenUp = std::function<void(const std::string& reason, End last)>;

  // `jitter` in [0, 1) spreads the tries of many. Borrows `limits`.
  Dialer(boost::asio::io_context& context, const NetworkLimits& limits, Endpoint to,
         std::string from, int64_t deadline_ns, double jitter);
  void start(OnConnected on_connected, OnGivenUp on_given_up);
  // The connection it made came to nothing: tries again, or gives up.
  void try_again(const std::string& reason, End how = End::kPlain);
  void stop();

 private:
  void look_up();
  void connect();
  void on_connect(const boost::system::error_code& error);
  int64_t left_ms() const;

  const NetworkLimits& limits_;
  const Endpoint to_;
  const std::string from_;
  const int64_t deadline_ns_;
  const double jitter_;
  Tcp::resolver resolver_;
  Tcp::socket socket_;
  boost::asio::steady_timer timer_;
  std::vector<Tcp::endpoint> addresses_;
  size_t tries_ = 0;
  bool stopped_ = false;
  OnConnected on_connected_;
  OnGivenUp on_given_up_;
};

}  // namespace lockstep::launcher::net
