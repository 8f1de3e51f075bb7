// Ranks as threads of one process: a Communicator over shared memory. What a collective sends is
// copied when it is issued; a wait ends when every rank has issued it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstring>
#include <functional>

#include "base/text.h"
#include "core/comm/two_legs.h"
#include "layout/shard_layout.h"
#include "tests/support/thread_hub.h"

namespace lockstep::core {

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadHub> hub, int rank)
      : hub_(std::move(hub)),
        rank_(rank),
        counter_(rank, std::vector<int>(static_cast<size_t>(hub_->size()))) {}
  int rank() const override { return rank_; }
  int world_size() const override { return hub_->size(); }

  PendingPtr all_gather(at::Tensor out, at::Tensor in, Traffic traffic) override {
    for (int from = 0; from < hub_->size(); ++from)
      counter_.add(traffic, from, static_cast<int64_t>(in.nbytes()));
    return issue(out, in, std::vector<size_t>(static_cast<size_t>(hub_->size()), in.nbytes()),
                 /*whole=*/true);
  }
  PendingPtr all_to_all(at::Tensor out, std::vector<int64_t> out_counts, at::Tensor in,
                        std::vector<int64_t> in_counts) override {
    for (int from = 0; from < hub_->size(); ++from)
      counter_.add(Traffic::kExchange, from,
                   out_counts[static_cast<size_t>(from)] * in.element_size());
    std::vector<size_t> counts;
    for (int64_t n : in_counts) counts.push_back(static_cast<size_t>(n) * in.element_size());
    return issue(out, in, std::move(counts), /*whole=*/false);
  }
  PendingPtr all_reduce_sum(at::Tensor tensor) override {
    const int64_t sequence = next_++;
    hub_->post(sequence, rank_, {bytes_of(tensor), {}});
    return std::make_unique<Waiting>([hub = hub_, tensor, sequence]() mutable -> Result<void> {
      const ThreadHub::All all = hub->take(sequence);
      if (!all) return Error{Code::kPeerLost, "a rank did not come"};
      tensor.zero_();
      for (const auto& sent : *all)
        for (int64_t i = 0; i < tensor.numel(); ++i)
          tensor.data_ptr<float>()[i] += reinterpret_cast<const float*>(sent->bytes.data())[i];
      return {};
    });
  }

  // Without those of all_reduce_sum.
  WireBytes wire_bytes() const override { return counter_.bytes(); }

 private:
  template <typename F>
  class WaitingFor : public Pending {
   public:
    explicit WaitingFor(F f) : f_(std::move(f)) {}
    Result<void> wait() override { return f_(); }

   private:
    F f_;
  };
  using Waiting = WaitingFor<std::function<Result<void>()>>;

  static std::vector<std::byte> bytes_of(const at::Tensor& t) {
    std::vector<std::byte> bytes(t.nbytes());
    if (!bytes.empty()) std::memcpy(bytes.data(), t.data_ptr(), bytes.size());
    return bytes;
  }

  // whole: every rank gets all that each one sends; else its part.
  PendingPtr issue(at::Tensor out, const at::Tensor& in, std::vector<size_t> counts, bool whole) {
    const int64_t sequence = next_++;
    hub_->post(sequence, rank_, {bytes_of(in), std::move(counts)});
    return std::make_unique<Waiting>(
        [hub = hub_, out, sequence, whole, rank = static_cast<size_t>(rank_)]() -> Result<void> {
          const ThreadHub::All all = hub->take(sequence);
          if (!all) return Error{Code::kPeerLost, "a rank did not come"};
          std::byte* to = static_cast<std::byte*>(out.data_ptr());
          for (const auto& sent : *all) {
            size_t from = 0;
            for (size_t r = 0; !whole && r < rank; ++r) from += sent->counts[r];
            const size_t n = sent->counts[rank];
            if (n > 0) std::memcpy(to, sent->bytes.data() + from, n);
            to += n;
          }
          const size_t got = static_cast<size_t>(to - static_cast<std::byte*>(out.data_ptr()));
          if (got != out.nbytes())
            return Error{Code::kBug, text(got, " bytes came for ", out.nbytes())};
          return {};
        });
  }

  std::shared_ptr<ThreadHub> hub_;
  int rank_;
  WireCounter counter_;
  int64_t next_ = 0;
};

// The communicators of W ranks in groups.
class ThreadGroups {
 public:
  ThreadGroups(int world_size, const layout::GroupSizes& sizes, int ranks_of_node = 0)
      : ranks_of_node_(ranks_of_node) {
    const int size = sizes.group, groups = world_size / size;
    auto world = std::make_shared<ThreadHub>(world_size);
    std::vector<std::shared_ptr<ThreadHub>> group, peers;
    for (int g = 0; g < groups; ++g) group.push_back(std::make_shared<ThreadHub>(size));
    for (int p = 0; p < size; ++p) peers.push_back(std::make_shared<ThreadHub>(groups));
    for (int r = 0; r < world_size; ++r) {
      const int g = r / size, place = r % size;
      members_.push_back(std::make_unique<Member>(world, group[static_cast<size_t>(g)],
                                                  peers[static_cast<size_t>(place)], r, sizes));
    }
  }
  Groups of(int rank) {
    Member& m = *members_[static_cast<size_t>(rank)];
    return {&m.world, &m.group,      &m.peers, &m.of_copies.shard(), &m.of_copies.copies(),
            at::kCPU, ranks_of_node_};
  }

 private:
  struct Member {
    Member(std::shared_ptr<ThreadHub> of_all, std::shared_ptr<ThreadHub> of_group,
           std::shared_ptr<ThreadHub> of_peers, int rank, const layout::GroupSizes& sizes)
        : world(std::move(of_all), rank),
          group(std::move(of_group), rank % sizes.group),
          peers(std::move(of_peers), rank / sizes.group),
          of_copies(group, peers, sizes.shard) {}
    ThreadCommunicator world, group, peers;
    CopyGroups of_copies;
  };
  int ranks_of_node_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace lockstep::core
