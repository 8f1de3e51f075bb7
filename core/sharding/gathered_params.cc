#include "core/sharding/gathered_params.h"

#include <ATen/ops/empty.h>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::core {

GatheredParams::GatheredParams(const layout::UnitSpec& spec, const layout::ShardLayout& layout,
                               const Strategy& strategy, at::Tensor shard_S, const Groups& groups,
                               BufferPool& pool)
    : name_(spec.name), group_(*groups.shard), pool_(pool), shard_S_(std::move(shard_S)) {
  if (strategy.keep_joint_part)
    joint_ = std::make_unique<JointPart>(JointPart{
        {*groups.group, *groups.peers}, at::empty({layout.joint_elements()}, shard_S_.options())});
  gathered_U_ =
      resident() ? shard_S_ : pool.take_tensor(layout.padded_elements(), shard_S_.scalar_type());
  const std::vector<int64_t> offsets = layout::param_offsets(spec);
  for (size_t i = 0; i < offsets.size(); ++i)
    weights_.push_back(
        gathered_U_.narrow(0, offsets[i], spec.params[i].elements()).view(spec.params[i].shape));
  LOCKSTEP_CHECK(
      weights_.size() == spec.params.size() && gathered_U_.numel() == layout.padded_elements(),
      name_, ": ", gathered_U_.numel(), " elements of ", layout.padded_elements());
  release();
}

void GatheredParams::start() {
  if (has_memory()) return;
  LOCKSTEP_CHECK(!gather_, "start of ", name_, " while it is being gathered");
  gathered_U_.storage().set_data_ptr(pool_.take(gathered_U_.storage().nbytes()));
  gather_ = gather();
}

PendingPtr GatheredParams::gather() {
  if (!joint_) return group_.all_gather(gathered_U_, shard_S_, Traffic::kGather);
  if (std::exchange(joint_->is_there, true))
    return joint_->legs.share(gathered_U_, joint_->part_J, Traffic::kGather);
  return joint_->legs.all_gather_by(joint_->part_J, gathered_U_, shard_S_, Traffic::kGather);
}

Result<void> GatheredParams::finish() {
  LOCKSTEP_CHECK(has_memory(), "finish of ", name_, " before start");
  if (!gather_) return {};
  if (auto done = gather_->wait(); !done.ok())
    return done.error().in(text("gathering unit ", name_));
  gather_.reset();
  return {};
}

const at::Tensor& GatheredParams::weight(int param) const {
  LOCKSTEP_CHECK(param >= 0 && param < std::ssize(weights_), "parameter ", param, " of ",
                 weights_.size(), " of ", name_);
  LOCKSTEP_CHECK(has_memory() && !gather_, name_, " is read before it is gathered");
  return weights_[static_cast<size_t>(param)];
}

void GatheredParams::forget() {
  LOCKSTEP_CHECK(!gather_, name_, " is forgotten while it is being gathered");
  if (joint_) joint_->is_there = false;
}

void GatheredParams::release() {
  if (resident() || !has_memory()) return;
  LOCKSTEP_CHECK(!gather_, "release of ", name_, " while it is being gathered");
  pool_.give(gathered_U_.storage().set_data_ptr(c10::DataPtr()));
}

}  // namespace lockstep::core
