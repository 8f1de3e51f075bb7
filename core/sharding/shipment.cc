#include "core/sharding/shipment.h"

#include <utility>

#include "base/check.h"

namespace lockstep::core {

void Shipment::start(std::vector<at::Tensor> mine, const layout::Leg& leg, int64_t part_elements) {
  LOCKSTEP_CHECK(!under_way(), "two exchanges at once");
  const size_t members = leg.members(), me = static_cast<size_t>(group_.rank());
  LOCKSTEP_CHECK(
      static_cast<int>(members) == group_.world_size() && mine.size() == leg.of(me).size(), members,
      " members, ", mine.size(), " of ", leg.of(me).size(), " pieces");
  leg_ = &leg;
  mine_ = std::move(mine);
  part_elements_ = part_elements;
  if (leg.buffers() == 0) received_ = mine_;  // alone: what is sent is what would be received
  for (size_t k = 0; k < leg.buffers(); ++k) {
    const bool sends = k < mine_.size();
    std::vector<int64_t> in_counts(members, sends ? part_elements : 0), out_counts(members, 0);
    int64_t parts = 0;
    for (size_t m = 0; m < members; ++m)
      if (k < leg.of(m).size()) out_counts[m] = part_elements, ++parts;
    received_.push_back(pool_.take_tensor(leg.buffer_elements(part_elements),
                                          leg.fp32 ? at::kFloat : at::kBFloat16));
    const at::Tensor& all = received_.back();
    pending_.push_back(group_.all_to_all(all.narrow(0, 0, parts * part_elements), out_counts,
                                         sends ? mine_[k] : all.narrow(0, 0, 0), in_counts));
  }
}

Result<void> Shipment::wait() {
  for (PendingPtr& one : pending_) LOCKSTEP_RETURN_IF_ERROR(one->wait());
  pending_.clear();
  return {};
}

std::vector<at::Tensor> Shipment::finish() {
  if (under_way() && leg_->buffers() > 0)
    for (at::Tensor& t : received_) pool_.give_tensor(t);
  received_.clear();
  leg_ = nullptr;
  return std::exchange(mine_, {});
}

}  // namespace lockstep::core
