#include "core/comm/node_communicator.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/shared_region.h"
#include "base/text.h"
#include "core/audit/bit_flip.h"
#include "core/comm/gather_strings.h"
#include "core/comm/interruption.h"

namespace lockstep::core {
namespace {

// Of addresses; memory is taken as collectives under way need it.
constexpr size_t kRegionBytes = size_t{1} << 36;
constexpr size_t kAlignment = 4096;
// Collectives of a rank that others have still to read: more than are ever under way.
constexpr size_t kSlots = 64;
constexpr int kSpins = 64;
constexpr int64_t kLookNs = 20'000'000;  // how often a waiting rank asks whether its peer lives

// What a region begins with. Collectives count from 1; number k is announced in slot k % kSlots.
struct Slot {
  std::atomic<uint64_t> number;   // written last
  std::atomic<uint32_t> readers;  // ranks that have not read it yet
  uint64_t offset;                // of its Parts
};
struct Header {
  std::atomic<uint32_t> bell;  // changes with each announcement
  std::array<Slot, kSlots> slots;
};
// The bytes for one rank.
struct Part {
  uint64_t offset, bytes;
};

// Where a rank leaves what others read.
class Outbox {
 public:
  explicit Outbox(SharedRegion region) : region_(std::move(region)) {}
  Header& header() const { return *reinterpret_cast<Header*>(region_.data()); }
  bool owner_lives() const { return region_.creator_lives(); }
  std::byte* at(uint64_t offset) const { return region_.data() + offset; }
  Part* parts(uint64_t offset) const { return reinterpret_cast<Part*>(at(offset)); }

 private:
  SharedRegion region_;
};

// Blocks of the own outbox: the lowest room that is free, so that the same pages serve again.
class Room {
 public:
  // Forgets blocks that everybody has read. Errors: kNoSpace.
  Result<uint64_t> take(const Header& header, size_t slot, size_t bytes) {
    std::erase_if(taken_, [&](const Block& b) { return header.slots[b.slot].readers.load() == 0; });
    uint64_t from = kAlignment;
    while (from < sizeof(Header)) from += kAlignment;
    auto next = taken_.begin();
    for (; next != taken_.end() && next->begin < from + bytes; ++next) from = next->end;
    const uint64_t end = (from + bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (end > kRegionBytes)
      return Error{Code::kNoSpace, text("no room for ", bytes, " bytes of shared memory")};
    taken_.insert(next, {from, end, slot});
    return from;
  }

 private:
  struct Block {
    uint64_t begin, end;
    size_t slot;
  };
  std::vector<Block> taken_;  // in order
};

class NodeCommunicator : public Communicator {
 public:
  NodeCommunicator(std::unique_ptr<Communicator> group, std::vector<Outbox> outboxes,
                   double timeout_s)
      : group_(std::move(group)),
        outboxes_(std::move(outboxes)),
        timeout_s_(timeout_s),
        received_(group_->rank(), std::vector<int>(outboxes_.size(), 0)) {}
  int rank() const override { return group_->rank(); }
  int world_size() const override { return group_->world_size(); }

  PendingPtr all_gather(at::Tensor out, at::Tensor in, Traffic traffic) override {
    LOCKSTEP_CHECK(out.nbytes() == in.nbytes() * outboxes_.size(), out.nbytes(), " ", in.nbytes());
    return issue("all-gather", traffic, out, std::vector<size_t>(outboxes_.size(), in.nbytes()), in,
                 std::vector<size_t>{in.nbytes()});
  }

  PendingPtr all_to_all(at::Tensor out, std::vector<int64_t> out_counts, at::Tensor in,
                        std::vector<int64_t> in_counts) override {
    check_counts(out, out_counts, world_size(), "received");
    check_counts(in, in_counts, world_size(), "sent");
    return issue("exchange", Traffic::kExchange, out, bytes_of(out_counts, out), in,
                 bytes_of(in_counts, in));
  }

  PendingPtr spread(at::Tensor tensor) override { return group_->spread(tensor); }
  PendingPtr all_reduce_sum(at::Tensor tensor) override { return group_->all_reduce_sum(tensor); }
  WireBytes wire_bytes() const override {
    WireBytes sum = group_->wire_bytes();
    sum.add(received_.bytes());
    return sum;
  }

 private:
  // Reads everybody's part.
  class Incoming : public Pending {
   public:
    Incoming(NodeCommunicator& owner, uint64_t number, std::string what, at::Tensor out,
             std::vector<size_t> bytes)
        : owner_(owner),
          number_(number),
          what_(std::move(what)),
          out_(std::move(out)),
          bytes_(std::move(bytes)) {}
    Result<void> wait() override {
      LOCKSTEP_CHECK(!std::exchange(waited_, true), what_, " is waited for twice");
      const int ranks = owner_.world_size(), me = owner_.rank();
      const double deadline = system_clock().monotonic_s() + owner_.timeout_s_;
      for (int k = 1; k < ranks; ++k) {
        const int from = (me + k) % ranks;
        auto there = owner_.wait_for(from, number_, deadline);
        if (!there.ok()) return there.error().in(what_);
        read_from(from);
      }
      return {};
    }

   private:
    void read_from(int rank) {
      const size_t from = static_cast<size_t>(rank);
      const Outbox& outbox = owner_.outboxes_[from];
      Slot& slot = outbox.header().slots[number_ % kSlots];
      const Part part = outbox.parts(slot.offset)[owner_.rank()];
      LOCKSTEP_CHECK(part.bytes == bytes_[from], what_, ": rank ", rank, " sends ", part.bytes,
                     " bytes, ", bytes_[from], " are expected");
      const size_t before = std::accumulate(bytes_.begin(), bytes_.begin() + rank, size_t{0});
      std::memcpy(static_cast<std::byte*>(out_.data_ptr()) + before, outbox.at(part.offset),
                  part.bytes);
      slot.readers.fetch_sub(1);
    }

    NodeCommunicator& owner_;
    uint64_t number_;
    std::string what_;
    at::Tensor out_;
    std::vector<size_t> bytes_;  // from each rank
    bool waited_ = false;
  };

  static std::vector<size_t> bytes_of(const std::vector<int64_t>& counts, const at::Tensor& t) {
    std::vector<size_t> bytes;
    for (int64_t n : counts) bytes.push_back(static_cast<size_t>(n) * t.element_size());
    return bytes;
  }

  // `in_bytes`: of the part for each rank, which follow each other in `in`; or of the one that all
  // get.
  PendingPtr issue(const char* kind, Traffic traffic, const at::Tensor& out,
                   std::vector<size_t> out_bytes, const at::Tensor& in,
                   const std::vector<size_t>& in_bytes) {
    LOCKSTEP_CHECK(out.is_contiguous() && in.is_contiguous(), kind, " of scattered memory");
    const uint64_t number = ++number_;
    const std::string what = text(kind, " #", number);
    for (int r = 0; r < world_size(); ++r)
      received_.add(traffic, r, static_cast<int64_t>(out_bytes[static_cast<size_t>(r)]));
    const size_t me = static_cast<size_t>(rank());
    const auto* source = static_cast<const std::byte*>(in.data_ptr());
    const bool to_all = in_bytes.size() == 1;
    const size_t before =
        to_all ? 0 : std::accumulate(in_bytes.begin(), in_bytes.begin() + rank(), size_t{0});
    const size_t place = std::accumulate(out_bytes.begin(), out_bytes.begin() + rank(), size_t{0});
    auto* own = static_cast<std::byte*>(out.data_ptr()) + place;
    if (own != source + before) std::memcpy(own, source + before, out_bytes[me]);
    if (auto sent = announce(number, traffic, source, in_bytes); !sent.ok())
      return std::make_unique<Failed>(sent.error().in(what));
    return std::make_unique<Incoming>(*this, number, what, out, std::move(out_bytes));
  }

  // Copies the parts into the own outbox and lets everybody know.
  Result<void> announce(uint64_t number, Traffic traffic, const std::byte* source,
                        const std::vector<size_t>& in_bytes) {
    const Outbox& mine = outboxes_[static_cast<size_t>(rank())];
    Slot& slot = mine.header().slots[number % kSlots];
    LOCKSTEP_CHECK(slot.readers.load() == 0, kSlots, " collectives are under way");
    const size_t table = outboxes_.size() * sizeof(Part);
    const size_t total = std::accumulate(in_bytes.begin(), in_bytes.end(), size_t{0});
    LOCKSTEP_TRY(slot.offset, room_.take(mine.header(), number % kSlots, table + total));
    uint64_t next = slot.offset + table;
    for (size_t r = 0; r < outboxes_.size(); ++r) {
      const size_t bytes = in_bytes[in_bytes.size() == 1 ? 0 : r];
      mine.parts(slot.offset)[r] = {next, bytes};
      if (in_bytes.size() == 1) continue;
      if (static_cast<int>(r) != rank()) {
        std::memcpy(mine.at(next), source, bytes);
        next += bytes;
      }
      source += bytes;
    }
    if (in_bytes.size() == 1) std::memcpy(mine.at(next), source, total);
    if (traffic == Traffic::kGather)
      flip_site(FlipIn::kPassedOn, 0, 1, std::span(mine.at(next), total));
    slot.readers.store(static_cast<uint32_t>(world_size() - 1));
    slot.number.store(number);
    mine.header().bell.fetch_add(1);
    wake_all(mine.header().bell);
    return {};
  }

  Result<void> wait_for(int rank, uint64_t number, double deadline) {
    const Outbox& outbox = outboxes_[static_cast<size_t>(rank)];
    Header& header = outbox.header();
    const std::atomic<uint64_t>& announced = header.slots[number % kSlots].number;
    for (int spins = 0; spins < kSpins; ++spins) {
      if (announced.load() == number) return {};
      sched_yield();
    }
    while (true) {
      const uint32_t rung = header.bell.load();
      if (announced.load() == number) return {};
      wait_while(header.bell, rung, kLookNs);
      if (announced.load() == number) return {};
      if (interrupted()) return Error{Code::kPeerLost, "this generation is over"};
      if (!outbox.owner_lives()) return Error{Code::kPeerLost, text("rank ", rank, " is gone")};
      if (system_clock().monotonic_s() > deadline)
        return Error{Code::kPeerLost,
                     text("no answer from rank ", rank, " within ", timeout_s_, " s")};
    }
  }

  std::unique_ptr<Communicator> group_;
  std::vector<Outbox> outboxes_;  // by rank; the own one among them
  double timeout_s_;
  WireCounter received_;
  uint64_t number_ = 0;
  Room room_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> share_memory(std::unique_ptr<Communicator> group,
                                                   double timeout_s) {
  Result<SharedRegion> mine = SharedRegion::create(kRegionBytes);
  LOCKSTEP_TRY(const auto addresses, gather_strings(*group, mine.ok() ? mine.value().address() : "",
                                                    SharedRegion::kMaxAddress));
  std::string why = mine.ok() ? "" : mine.error().message;
  std::vector<Outbox> outboxes;
  for (int r = 0; r < group->world_size() && why.empty(); ++r) {
    auto region = r == group->rank() ? std::move(mine)
                                     : SharedRegion::open(addresses[static_cast<size_t>(r)]);
    if (region.ok())
      outboxes.emplace_back(std::move(region).value());
    else
      why = region.error().message;
  }
  LOCKSTEP_TRY(const auto votes, gather_strings(*group, why.empty() ? "y" : "n", 1));
  if (std::count(votes.begin(), votes.end(), "y") == group->world_size())
    return std::unique_ptr<Communicator>(
        std::make_unique<NodeCommunicator>(std::move(group), std::move(outboxes), timeout_s));
  if (!why.empty())
    log_warning(why, "; ranks of this node exchange data over Gloo instead, which is slower");
  return group;
}

}  // namespace lockstep::core
