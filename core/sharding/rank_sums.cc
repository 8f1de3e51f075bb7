#include "core/sharding/rank_sums.h"
#include "base/check.h"

#include <algorithm>
#include <bit>

namespace lockstep::core {
namespace {

double as_double(uint64_t word) { return std::bit_cast<double>(word); }
uint64_t as_word(double number) { return std::bit_cast<uint64_t>(number); }

}  // namespace

RankSums::RankSums(const layout::StepSums& places, int rank)
    : places_(places), rank_(rank), own_(static_cast<size_t>(places.words(1))) {}

void RankSums::set_loss(int64_t slot, double loss) {
  LOCKSTEP_CHECK(places_.map.rank_of(slot) == rank_ && !shared_, "rank ", rank_,
                 " has a loss of slot ", slot, " of rank ", places_.map.rank_of(slot));
  own_[static_cast<size_t>(places_.loss(slot, rank_))] = as_word(loss);
}

void RankSums::set_valid_tokens(int64_t slot, int64_t tokens) {
  LOCKSTEP_CHECK(places_.map.rank_of(slot) == rank_ && tokens >= 0, "rank ", rank_, " has ", tokens,
                 " tokens of slot ", slot);
  own_[static_cast<size_t>(places_.valid_tokens(slot, rank_))] = static_cast<uint64_t>(tokens);
}

void RankSums::set_flags(const RankFlags& mine) {
  const auto words = mine.words();
  std::copy(words.begin(), words.end(), own_.end() - layout::kRankFlags);
}

void RankSums::merge(int, int, int, Words before, Words others, Place out) const {
  const auto flags = static_cast<size_t>(places_.flags);
  const Words first = before.first(before.size() - flags),
              rest = others.first(others.size() - flags);
  const auto next = std::copy(first.begin(), first.end(), out.begin());
  std::copy(rest.begin(), rest.end(), next);
  if (flags == 0) return;
  RankFlags any = RankFlags::of(before.data() + first.size());
  any.add(RankFlags::of(others.data() + rest.size()));
  const auto words = any.words();
  std::copy(words.begin(), words.end(), out.end() - layout::kRankFlags);
}

void RankSums::answer(Words all, Place out) const {
  SlotLoss total;
  for (int64_t slot = 0; slot < places_.map.slots; ++slot) {
    total.sum += as_double(all[static_cast<size_t>(places_.loss(slot, 0))]);
    total.valid_tokens +=
        static_cast<int64_t>(all[static_cast<size_t>(places_.valid_tokens(slot, 0))]);
  }
  out[0] = as_word(total.sum);
  out[1] = static_cast<uint64_t>(total.valid_tokens);
  std::copy(all.end() - places_.flags, all.end(), out.begin() + 2);
}

void RankSums::share(Communicator& comm) {
  LOCKSTEP_CHECK(!shared_, "rank ", rank_, " shares a step's losses twice");
  shared_ = std::make_unique<MergedWords>(comm, *this, own_);
}

Result<void> RankSums::wait() {
  LOCKSTEP_CHECK(shared_, "rank ", rank_, " waits for losses that were not shared");
  LOCKSTEP_TRY(const std::vector<uint64_t> said, shared_->wait());
  total_ = {as_double(said[0]), static_cast<int64_t>(said[1])};
  if (places_.flags > 0) flags_ = RankFlags::of(said.data() + 2);
  return {};
}

}  // namespace lockstep::core
