// An echo server on a Network of its own thread, and a well-behaved client beside whatever a test
// does to the server.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "launcher/net/network.h"
#include "tests/support/eventually.h"

namespace lockstep::launcher::net {

constexpr int64_t kWaitMs = 10;
constexpr int64_t kMaxTestMs = test_support::kPatienceMs;

inline double now_ms() { return system_clock().monotonic_s() * 1e3; }

// The first event of a kind; fails the test when none comes in time.
template <typename Kind>
std::optional<Kind> await(Network& network) {
  const double deadline = now_ms() + static_cast<double>(kMaxTestMs);
  while (now_ms() < deadline)
    for (ConnectionEvent& event : network.wait(kWaitMs))
      if (Kind* found = std::get_if<Kind>(&event)) return std::move(*found);
  ADD_FAILURE() << "no such event came";
  return std::nullopt;
}

class EchoServer {
 public:
  explicit EchoServer(const Secret& secret, NetworkLimits limits = {})
      : network_({secret, limits, "", [this](const std::string& line) { note(line); }}),
        at_(network_.listen({"127.0.0.1", 0}).value()),
        thread_([this] { run(); }) {}
  ~EchoServer() {
    stop_ = true;
    thread_.join();
  }

  const Endpoint& at() const { return at_; }
  std::vector<std::string> warnings() {
    std::lock_guard lock(mutex_);
    return warnings_;
  }
  NetworkCounts counts() {  // a few ms old
    std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  void note(const std::string& line) {
    std::lock_guard lock(mutex_);
    warnings_.push_back(line);
  }
  void run() {
    while (!stop_) {
      for (ConnectionEvent& event : network_.wait(kWaitMs))
        if (auto* received = std::get_if<Received>(&event))
          network_.send(received->peer, std::move(received->payload));
      std::lock_guard lock(mutex_);
      counts_ = network_.counts();
    }
  }

  std::mutex mutex_;
  std::vector<std::string> warnings_;
  NetworkCounts counts_;
  Network network_;
  const Endpoint at_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Sends numbers one after the other and wants each of them back.
class GoodClient {
 public:
  GoodClient(const Secret& secret, const Endpoint& server)
      : network_({secret}), peer_(network_.dial(server, kMaxTestMs)), thread_([this] { run(); }) {
    await_echoes(1);
  }
  ~GoodClient() {
    stop_ = true;
    thread_.join();
  }
  // Waits for so many more; false: they did not come in time.
  bool await_echoes(int64_t more) {
    const int64_t wanted = echoes_ + more;
    const double deadline = now_ms() + static_cast<double>(kMaxTestMs);
    while (echoes_ < wanted && now_ms() < deadline) system_clock().sleep_ns(1'000'000);
    return echoes_ >= wanted;
  }
  bool disturbed() const { return disturbed_; }
  double slowest_ms() const { return slowest_ms_; }

 private:
  void run() {
    double sent_ms = now_ms();
    while (!stop_)
      for (const ConnectionEvent& event : network_.wait(kWaitMs)) {
        if (std::holds_alternative<Closed>(event)) disturbed_ = true;
        if (const auto* received = std::get_if<Received>(&event)) {
          if (received->payload != std::to_string(echoes_)) disturbed_ = true;
          slowest_ms_ = std::max(slowest_ms_.load(), now_ms() - sent_ms);
          ++echoes_;
        }
        sent_ms = now_ms();
        network_.send(peer_, std::to_string(echoes_));
      }
  }
  Network network_;
  const PeerId peer_;
  std::atomic<bool> stop_ = false, disturbed_ = false;
  std::atomic<int64_t> echoes_ = 0;
  std::atomic<double> slowest_ms_ = 0;
  std::thread thread_;
};

}  // namespace lockstep::launcher::net
