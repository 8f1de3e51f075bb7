#include "core/comm/sim_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::core {
namespace {

using Meeting = SimHub::Meeting;
using Part = Meeting::Part;
using Rule = SimCall::Rule;

constexpr int kPoison = 0xff;

std::byte* bytes_of(const at::Tensor& t) {
  if (t.numel() == 0) return nullptr;
  return t.is_cpu() ? static_cast<std::byte*>(t.data_ptr())
                    : SimMemory::here().bytes_at(t.data_ptr());
}

bool overlap(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

std::vector<size_t> in_bytes(const std::vector<int64_t>& counts, size_t element_bytes) {
  std::vector<size_t> bytes;
  for (const int64_t n : counts) bytes.push_back(static_cast<size_t>(n) * element_bytes);
  return bytes;
}

// What a collective is, to those that wait for it.
struct Ends {
  std::shared_ptr<SimHub> hub;
  SimCall wait;
  bool fails;
  SimMark received, done;
};

class SimPending : public Pending {
 public:
  SimPending(Ends ends, std::vector<at::Tensor> buffers)
      : ends_(std::move(ends)), buffers_(std::move(buffers)) {}
  // Its work may go on: nobody gets its buffers, and its queue stays.
  ~SimPending() override {
    if (finished_) return;
    new SimMark(ends_.done);
    SimCall keeps = ends_.wait;
    keeps.rule = Rule::kCollectiveKeeps;
    SimWorld* const world = SimWorld::current();
    if (world == nullptr || !world->leaves_out(keeps))
      new std::vector<at::Tensor>(std::move(buffers_));
  }

  Result<void> wait() override {
    LOCKSTEP_CHECK(!finished_, ends_.wait.what, " is waited for twice");
    const std::string& what = ends_.wait.what;
    if (ends_.hub->over())
      return Error{Code::kPeerLost, text(what, ": an earlier collective failed")};
    if (ends_.fails) {
      ends_.hub->end();
      return Error{Code::kPeerLost, text(what, ": the device reports an error")};
    }
    SimWorld& world = SimWorld::here();
    try {
      SimCall peers = ends_.wait;
      peers.rule = Rule::kCollectivePeers;
      const SimMark& end = world.leaves_out(peers) ? ends_.received : ends_.done;
      if (!world.leaves_out(ends_.wait) && !world.wait_in_time(end, what)) {
        ends_.hub->end();
        return Error{Code::kPeerLost, text(what, ": no answer from a peer")};
      }
    } catch (const SimFailure& e) {
      return Error{Code::kPeerLost, e.what()};
    }
    finished_ = true;
    buffers_.clear();
    return {};
  }
  const SimMark& done() const { return ends_.done; }

 private:
  Ends ends_;
  std::vector<at::Tensor> buffers_;
  bool finished_ = false;
};

// Peers' bytes for `rank`, in rank order, to `out`.
void receive(const Meeting& meeting, size_t rank, std::byte* out) {
  for (const Part& part : meeting.parts) {
    const size_t from = std::accumulate(
        part.counts.begin(), part.counts.begin() + static_cast<std::ptrdiff_t>(rank), size_t{0});
    if (part.counts[rank] > 0) std::memcpy(out, part.in + from, part.counts[rank]);
    out += part.counts[rank];
  }
}

// Waits for the first peer that has not come as far: a task's `ready` and `needs`.
template <typename There, typename Mark>
SimTask when_all(std::string name, const std::shared_ptr<Meeting>& meeting, There there, Mark mark,
                 std::function<void()> run) {
  const auto missing = [=] {
    return std::find_if(meeting->parts.begin(), meeting->parts.end(),
                        [=](const Part& part) { return !there(part); });
  };
  return {.name = std::move(name),
          .run = std::move(run),
          .ready = [=] { return missing() == meeting->parts.end(); },
          .needs = [=] { return mark(*missing()); }};
}

}  // namespace

std::shared_ptr<Meeting> SimHub::meeting(Link link, int64_t sequence) {
  std::weak_ptr<Meeting>& known = meetings_[{link, sequence}];
  std::shared_ptr<Meeting> meeting = known.lock();
  if (meeting == nullptr) {
    meeting = std::make_shared<Meeting>();
    meeting->parts.resize(static_cast<size_t>(size_));
    known = meeting;
  }
  return meeting;
}

// What a collective reads and writes. `whole`: every rank gets all of the input.
struct SimCommunicator::Issue {
  at::Tensor out, in;
  std::vector<size_t> counts;  // bytes of the input for each rank
  bool whole = false, sum = false;
  const SimMark* before = nullptr;  // what it begins after, beside the current stream
};

SimCommunicator::SimCommunicator(std::shared_ptr<SimHub> hub, int rank)
    : hub_(std::move(hub)),
      rank_(rank),
      host_{SimHub::Link::kHost, SimWorld::here().new_queue()},
      gathers_{SimHub::Link::kGathers, SimWorld::here().new_queue()},
      exchanges_{SimHub::Link::kExchanges, SimWorld::here().new_queue()},
      received_(rank, std::vector<int>(static_cast<size_t>(hub_->size()), 0)) {}

void SimCommunicator::wait_in(Stream& stream, const SimMark& before) {
  SimWorld::here().give(stream.queue, {.name = "wait for another stream",
                                       .run = [] {},
                                       .ready = [before] { return before.reached(); },
                                       .needs = [before] { return before; }});
}

// 1. Behind the current stream; 2. come: the output is poison from now on; 3. when all have come,
// receive; 4. done when all have received.
PendingPtr SimCommunicator::issue(Stream& stream, const char* kind, Issue issue) {
  SimWorld& world = SimWorld::here();
  const std::string what = hub_->name() + " " + kind;
  LOCKSTEP_CHECK(issue.out.is_contiguous() && issue.in.is_contiguous(), what);
  if (hub_->over())
    return std::make_unique<Failed>(
        Error{Code::kPeerLost, text(what, ": an earlier collective failed")});
  const bool fails = hub_->fails(stream.link, stream.sequence);
  const auto meeting = hub_->meeting(stream.link, stream.sequence++);
  const size_t me = static_cast<size_t>(rank_);
  std::byte *const out = bytes_of(issue.out), *const in = bytes_of(issue.in);
  const size_t out_bytes = issue.out.nbytes();
  try {
    if (issue.out.device().type() == kSim &&
        !world.leaves_out({Rule::kCollectiveAfter, what, issue.out.numel()})) {
      wait_in(stream,
              world.mark(world.compute_queue(static_cast<int>(issue.out.device().index()))));
    }
    if (issue.before != nullptr && !world.leaves_out({Rule::kSecondLeg, what, issue.out.numel()}))
      wait_in(stream, *issue.before);
    const bool poison = !issue.sum && !overlap(out, out_bytes, in, issue.in.nbytes());
    const auto come = [=, view = SimView(issue.in), counts = issue.counts, sum = issue.sum] {
      Part& part = meeting->parts[me];
      part.in = in;
      part.counts = counts;
      if (sum) part.sum = view.tensor().clone();
      part.is_there = true;
      if (poison && out_bytes > 0) std::memset(out, kPoison, out_bytes);
    };
    meeting->parts[me].begun = world.give(stream.queue, {what, come});
    const auto take = [=, view = SimView(issue.out), whole = issue.whole, sum = issue.sum] {
      if (sum) {
        at::Tensor all = view.tensor().zero_();
        for (const Part& part : meeting->parts) all.add_(part.sum);
      } else if (whole) {
        std::byte* to = out;
        for (const Part& part : meeting->parts) {
          std::memcpy(to, part.in, part.counts[0]);
          to += part.counts[0];
        }
      } else {
        receive(*meeting, me, out);
      }
      meeting->parts[me].has_received = true;
    };
    meeting->parts[me].received =
        world.give(stream.queue, when_all(
                                     what, meeting, [](const Part& p) { return p.is_there; },
                                     [](const Part& p) { return p.begun; }, take));
    const SimMark done =
        world.give(stream.queue, when_all(
                                     what, meeting, [](const Part& p) { return p.has_received; },
                                     [](const Part& p) { return p.received; }, [] {}));
    const SimCall wait{Rule::kCollectiveWait, what, issue.out.numel()};
    return std::make_unique<SimPending>(Ends{hub_, wait, fails, meeting->parts[me].received, done},
                                        std::vector<at::Tensor>{issue.out, issue.in});
  } catch (const SimFailure& e) {
    return std::make_unique<Failed>(Error{Code::kPeerLost, e.what()});
  }
}

PendingPtr SimCommunicator::all_gather(at::Tensor out, at::Tensor in, Traffic traffic) {
  return gather(out, in, traffic, nullptr);
}

PendingPtr SimCommunicator::all_gather_after(const Pending& first, at::Tensor out, at::Tensor in,
                                             Traffic traffic) {
  const auto* const before = dynamic_cast<const SimPending*>(&first);
  if (before == nullptr || out.is_cpu()) return nullptr;
  return gather(out, in, traffic, &before->done());
}

PendingPtr SimCommunicator::gather(at::Tensor out, at::Tensor in, Traffic traffic,
                                   const SimMark* before) {
  LOCKSTEP_CHECK(out.nbytes() == in.nbytes() * static_cast<size_t>(world_size()), out.nbytes(), " ",
                 in.nbytes());
  for (int r = 0; r < world_size(); ++r)
    received_.add(traffic, r, static_cast<int64_t>(in.nbytes()));
  const bool on_host = out.is_cpu();
  const char* const kind = on_host                       ? "all_gather of the host"
                           : traffic == Traffic::kGather ? "all_gather of parameters"
                                                         : "all_gather of sums";
  return issue(on_host ? host_ : gathers_, kind,
               {out, in, {in.nbytes()}, /*whole=*/true, /*sum=*/false, before});
}

PendingPtr SimCommunicator::all_to_all(at::Tensor out, std::vector<int64_t> out_counts,
                                       at::Tensor in, std::vector<int64_t> in_counts) {
  check_counts(out, out_counts, world_size(), "received");
  check_counts(in, in_counts, world_size(), "sent");
  for (int r = 0; r < world_size(); ++r)
    received_.add(Traffic::kExchange, r,
                  out_counts[static_cast<size_t>(r)] * static_cast<int64_t>(out.element_size()));
  return issue(out.is_cpu() ? host_ : exchanges_,
               out.is_cpu() ? "exchange of the host" : "exchange",
               {out, in, in_bytes(in_counts, in.element_size())});
}

PendingPtr SimCommunicator::all_reduce_sum(at::Tensor tensor) {
  const int ranks = world_size();
  received_.add(Traffic::kExchange, (rank() + ranks - 1) % ranks,
                static_cast<int64_t>(tensor.nbytes()) * 2 * (ranks - 1) / ranks);
  return issue(tensor.is_cpu() ? host_ : exchanges_, "all_reduce",
               {tensor, tensor, {}, /*whole=*/true, /*sum=*/true});
}

}  // namespace lockstep::core
