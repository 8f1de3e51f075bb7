// The communicator of simulated devices, for tests: ranks that are threads of one SimWorld.
//
// A collective of device tensors is work of a stream of the communicator's own, one for gathers and
// one for exchanges, and does what device_communicator.h promises as unkindly as it may: it begins
// after what the current stream was given before it, not sooner; what it writes to is poison from
// its begin to its end; every rank reads its peers' inputs where they lie, as late as the seed
// likes, so that an input must stay as it is until wait() has returned on its own rank. Host
// tensors go the same way over a stream of no device. A wait that nothing can end any more, since a
// peer is gone, has missed its deadline: kPeerLost, and the group is over.
// Thread: each rank's.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/device/sim_device.h"

namespace lockstep::core {

// What the ranks of one group share.
class SimHub {
 public:
  // `name`: the group's, in the words of SimCall.
  SimHub(std::string name, int size) : name_(std::move(name)), size_(size) {}
  const std::string& name() const { return name_; }
  int size() const { return size_; }

  enum class Link { kHost, kGathers, kExchanges };
  // One collective, as far as its ranks have come.
  struct Meeting {
    struct Part {
      const std::byte* in = nullptr;  // where the rank's bytes lie; null: it has not begun
      std::vector<size_t> counts;     // of them, for each rank
      at::Tensor sum;                 // of a sum: a copy of them
      SimMark begun, received;        // once the rank has issued it
      bool is_there = false, has_received = false;
    };
    std::vector<Part> parts;  // by rank
  };
  // The one that is number `sequence` on every rank's `link`.
  std::shared_ptr<Meeting> meeting(Link link, int64_t sequence);

  // That one fails, later than it begins: waits for it end with an error, and its work goes on.
  void fail_at(Link link, int64_t sequence) { fails_ = {link, sequence}; }
  bool fails(Link link, int64_t sequence) const { return fails_ == std::pair(link, sequence); }
  // Of one rank's wait: this group is over. Nothing more begins in it.
  void end() { over_ = true; }
  bool over() const { return over_; }

 private:
  std::string name_;
  int size_;
  std::map<std::pair<Link, int64_t>, std::weak_ptr<Meeting>> meetings_;
  std::pair<Link, int64_t> fails_{Link::kHost, -1};
  bool over_ = false;
};

class SimCommunicator : public Communicator {
 public:
  SimCommunicator(std::shared_ptr<SimHub> hub, int rank);
  int rank() const override { return rank_; }
  int world_size() const override { return hub_->size(); }
  PendingPtr all_gather(at::Tensor out, at::Tensor in, Traffic traffic) override;
  PendingPtr all_gather_after(const Pending& first, at::Tensor out, at::Tensor in,
                              Traffic traffic) override;
  PendingPtr all_to_all(at::Tensor out, std::vector<int64_t> out_counts, at::Tensor in,
                        std::vector<int64_t> in_counts) override;
  PendingPtr all_reduce_sum(at::Tensor tensor) override;
  WireBytes wire_bytes() const override { return received_.bytes(); }

 private:
  struct Issue;
  struct Stream {
    SimHub::Link link;
    std::shared_ptr<SimQueue> queue;
    int64_t sequence = 0;
  };
  PendingPtr gather(at::Tensor out, at::Tensor in, Traffic traffic, const SimMark* before);
  static void wait_in(Stream& stream, const SimMark& before);
  PendingPtr issue(Stream& stream, const char* kind, Issue issue);

  std::shared_ptr<SimHub> hub_;
  int rank_;
  Stream host_, gathers_, exchanges_;
  WireCounter received_;
};

}  // namespace lockstep::core
