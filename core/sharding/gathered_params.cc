#include "core/sharding/gathered_params.h"

#include "base/check.h"
#include "base/text.h"

namespace lockstep::core {

GatheredParams::GatheredParams(const layout::UnitSpec& spec, const layout::ShardLayout& layout,
                               at::Tensor shard_S, Gatherer& group, BufferPool& pool)
    : name_(spec.name), group_(group), pool_(pool), shard_S_(std::move(shard_S)) {
  gathered_U_ =
      resident() ? shard_S_ : pool.take_tensor(layout.padded_elements(), shard_S_.scalar_type());
  const std::vector<int64_t> offsets = layout::param_offsets(spec);
  for (size_t i = 0; i < offsets.size(); ++i)
    weights_.push_back(
        gathered_U_.narrow(0, offsets[i], spec.params[i].elements()).view(spec.params[i].shape));
  release();
}

void GatheredParams::start() {
  if (has_memory_) return;
  gathered_U_.storage().set_data_ptr(pool_.take(gathered_U_.storage().nbytes()));
  has_memory_ = true;
  gather_ = group_.all_gather(gathered_U_, shard_S_, Traffic::kGather);
}

Result<void> GatheredParams::finish() {
  LOCKSTEP_CHECK(has_memory_, "finish of ", name_, " before start");
  if (!gather_) return {};
  if (auto done = gather_->wait(); !done.ok())
    return done.error().in(text("gathering unit ", name_));
  gather_.reset();
  return {};
}

void GatheredParams::release() {
  if (resident() || !has_memory_) return;
  LOCKSTEP_CHECK(!gather_, "release of ", name_, " while it is being gathered");
  pool_.give(gathered_U_.storage().set_data_ptr(c10::DataPtr()));
  has_memory_ = false;
}

}  // namespace lockstep::core
