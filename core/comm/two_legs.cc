#include "core/comm/two_legs.h"

#include <functional>
#include <utility>

#include "base/check.h"

namespace lockstep::core {
namespace {

class TwoLegs : public Pending {
 public:
  // `second`: null where it begins when the first one is done.
  TwoLegs(PendingPtr first, PendingPtr second, std::function<PendingPtr()> begin_second)
      : first_(std::move(first)),
        second_(std::move(second)),
        begin_second_(std::move(begin_second)) {}
  Result<void> wait() override {
    LOCKSTEP_CHECK(!std::exchange(waited_, true), "a gather in two legs is waited for twice");
    LOCKSTEP_RETURN_IF_ERROR(first_->wait());
    if (second_ == nullptr) second_ = begin_second_();
    return second_->wait();
  }

 private:
  PendingPtr first_, second_;
  std::function<PendingPtr()> begin_second_;
  bool waited_ = false;
};

}  // namespace

PendingPtr TwoLegGather::all_gather(at::Tensor out, at::Tensor in, Traffic traffic) {
  const int64_t joint = in.numel() * peers_.world_size();
  return all_gather_by(out.narrow(0, group_.rank() * joint, joint), out, in, traffic);
}

PendingPtr TwoLegGather::all_gather_by(at::Tensor joint, at::Tensor out, at::Tensor in,
                                       Traffic traffic) {
  LOCKSTEP_CHECK(joint.numel() == in.numel() * peers_.world_size() &&
                     out.numel() == joint.numel() * group_.world_size(),
                 in.numel(), " elements of ", peers_.world_size(), " peers in ", joint.numel(),
                 ", of ", group_.world_size(), " neighbours in ", out.numel());
  PendingPtr first = peers_.all_gather(joint, in, traffic);
  PendingPtr second = group_.all_gather_after(*first, out, joint, traffic);
  return std::make_unique<TwoLegs>(
      std::move(first), std::move(second),
      [&group = group_, out, joint, traffic] { return group.all_gather(out, joint, traffic); });
}

CopyGroups::CopyGroups(Communicator& group, Communicator& peers, int shard_size)
    : both_legs_(group, peers), shard_(&group), copies_(&peers) {
  if (shard_size == group.world_size()) return;
  LOCKSTEP_CHECK(shard_size == 1 || shard_size == both_legs_.world_size(), shard_size,
                 " ranks share a copy of the state, in groups of ", group.world_size());
  shard_ = &alone_;
  copies_ = &both_legs_;
  if (shard_size > 1) std::swap(shard_, copies_);
}

}  // namespace lockstep::core
