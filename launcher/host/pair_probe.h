// Between two nodes: whether one reaches the other over TCP, how long a byte takes there and back,
// and how fast bytes go. For `lockstep doctor`; nothing of a job goes over it.
//
//   prober                          listener
//     the word                 -->    closes when it is another one
//     a byte, kRounds times   <-->    the same byte; closes when 2 s did not suffice so far
//     zeros, then the end      -->    throws them away
//                             <--     a byte: all came
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/net/endpoint.h"

namespace lockstep::launcher::net {

struct PairFigures {
  double round_trip_s = -1;  // the shortest of some
  double bytes_per_s = -1;   // one way, over one connection
};

// Answers probers one after the other, in a thread of its own, until it is destroyed.
class ProbeListener {
 public:
  // At a port that the system chooses. Errors: kConfig (no word, or not an address), kIo.
  static Result<std::unique_ptr<ProbeListener>> open(const std::string& address, std::string word);
  ~ProbeListener();
  ProbeListener(const ProbeListener&) = delete;
  ProbeListener& operator=(const ProbeListener&) = delete;

  const Endpoint& at() const { return at_; }

 private:
  ProbeListener(int fd, Endpoint at, std::string word);
  void serve();

  const int fd_;
  const Endpoint at_;
  const std::string word_;
  std::atomic<bool> over_{false};
  std::jthread thread_;
};

// Sends at most 64 MiB, for at most 0.3 s; gives up on a peer that says nothing for 5 s.
// `from`: the local address. Errors: kPeerLost, with the reason.
Result<PairFigures> probe_pair(Clock& clock, const std::string& from, const Endpoint& to,
                               const std::string& word);

}  // namespace lockstep::launcher::net
