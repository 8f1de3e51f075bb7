// One socket of a Network: reads what is there into its Channel, writes what is queued, and ends
// once, with a reason.
//
//   start --> (proof, within handshake_ms) --> on_open --> on_frame … --> on_end
//     +------------------------------------------------------------------^
//   close(reason): what is queued still goes out, within linger_ms; no further call to Events.
//
// Thread: the io_context's one. Lives as long as somebody holds it or an operation is under way.
#pragma once

#include <utility>  // before Asio, which forgets it

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "launcher/net/channel.h"
#include "launcher/net/connection_event.h"

namespace lockstep::launcher::net {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  // Who is told. May close or forget the connection from inside a call.
  struct Events {
    virtual ~Events() = default;
    virtual void on_open(Connection& connection) = 0;
    virtual void on_frame(Connection& connection, std::string payload) = 0;
    virtual void on_end(Connection& connection, const std::string& reason, End how) = 0;
  };
  struct Identity {
    PeerId peer = 0;
    Via via = Via::kAccepted;
    Endpoint local, remote;
    std::string name;  // in messages
  };

  // Borrows `events` and `scratch` (where all connections read to), which outlive the io_context.
  Connection(Events& events, Socket socket, Channel channel, Identity identity,
             const NetworkLimits& limits, std::span<char> scratch);
  void start();
  // A peer that does not read until max_queue_bytes wait is ended. Requires: open.
  void send(std::string_view payload);
  void close(const std::string& reason);

  const Identity& identity() const { return identity_; }
  bool open() const { return channel_.open(); }
  bool ended() const { return ended_; }

 private:
  void arm_read();
  void arm_write();
  void read();
  void take_in(std::string_view bytes);
  void deliver();
  void enqueue(std::string bytes);
  void flush();
  void after(int64_t ms, const std::string& reason);
  void end(const std::string& reason, End how = End::kPlain);

  Events& events_;
  Socket socket_;
  boost::asio::steady_timer timer_;
  Channel channel_;
  const Identity identity_;
  const NetworkLimits& limits_;
  const std::span<char> scratch_;
  std::deque<std::string> queue_;
  size_t queued_bytes_ = 0;
  size_t written_ = 0;  // of the queue's first
  bool told_open_ = false, write_armed_ = false, closing_ = false, ended_ = false;
};

// TCP as the control plane wants it: no delay, and a peer whose kernel is silent is lost after
// `silence_ms`, also when there is nothing to send for a while.
void set_tcp_options(int descriptor, int64_t silence_ms);
// Asio leaves its sockets open over exec; a worker that inherits one would keep it alive.
void close_on_exec(int descriptor);

}  // namespace lockstep::launcher::net
