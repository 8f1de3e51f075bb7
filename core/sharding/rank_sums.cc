#include "core/sharding/rank_sums.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

namespace lockstep::core {

RankSums::RankSums(const layout::StepSums& places, int rank)
    : places_(places), rank_(rank), own_(at::zeros({places.width()}, at::kDouble)) {}

void RankSums::set_valid_tokens(int64_t slot, int64_t tokens) {
  own(places_.valid_tokens(slot)) = static_cast<double>(tokens);
}

void RankSums::set_flags(const RankFlags& mine) {
  const auto row = mine.row();
  std::copy(row.begin(), row.end(), &own(places_.flag(rank_, 0)));
}

PendingPtr RankSums::gather(Communicator& comm) {
  all_ = at::zeros({places_.row(places_.map.world_size)}, at::kDouble);
  return comm.all_gather(all_, own_);
}

SlotLoss RankSums::total() const {
  const double* all = all_.data_ptr<double>();
  SlotLoss total;
  for (int64_t slot = 0; slot < places_.map.slots; ++slot) {
    total.sum += all[places_.loss(slot)];
    total.valid_tokens += static_cast<int64_t>(all[places_.valid_tokens(slot)]);
  }
  return total;
}

RankFlags RankSums::flags() const {
  RankFlags any;
  for (int rank = 0; rank < places_.map.world_size; ++rank)
    any.add(all_.data_ptr<double>() + places_.flag(rank, 0), rank == 0);
  return any;
}

}  // namespace lockstep::core
