#include "core/sharding/shipment.h"

#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "core/kernels/kernel_table.h"

namespace lockstep::core {

namespace {

// Of the part at `first` of a tensor: the `piece`-th that a member ships to another one.
DigestRun run_of(int64_t first, int64_t elements, size_t piece) {
  return {first, elements, mix64(piece)};
}

}  // namespace

Shipment::Shipment(Communicator& group, BufferPool& pool, FlipIn flips)
    : group_(group), pool_(pool), flips_(flips) {
  take_digests();
}

void Shipment::start(std::vector<at::Tensor> mine, const layout::Leg& leg, int64_t part_elements,
                     const ExchangeChecks& checks) {
  LOCKSTEP_CHECK(!under_way(), "two exchanges at once");
  const size_t members = leg.members(), me = static_cast<size_t>(group_.rank());
  LOCKSTEP_CHECK(
      static_cast<int>(members) == group_.world_size() && mine.size() == leg.of(me).size(), members,
      " members, ", mine.size(), " of ", leg.of(me).size(), " pieces");
  for (const at::Tensor& sum : mine)
    LOCKSTEP_CHECK(sum.numel() == leg.buffer_elements(part_elements), sum.numel(), " elements in ",
                   members, " parts of ", part_elements);
  leg_ = &leg;
  mine_ = std::move(mine);
  part_elements_ = part_elements;
  checks_ = checks;
  if (leg.buffers() == 0) received_ = mine_;  // alone: what is sent is what would be received
  for (size_t k = 0; k < leg.buffers(); ++k) {
    const bool sends = k < mine_.size();
    if (sends && checks_.audited) add_sent(k);
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
  LOCKSTEP_CHECK(under_way() && pending_.size() == leg_->buffers(), "a wait for ", pending_.size(),
                 " messages that nobody began");
  for (PendingPtr& one : pending_) LOCKSTEP_RETURN_IF_ERROR(one->wait());
  pending_.clear();
  if (leg_->buffers() == 0) return {};
  int64_t parts = 0;
  for (size_t m = 0; m < leg_->members(); ++m) parts += !leg_->of(m).empty();
  flip_site(flips_, checks_.site, checks_.sites,
            received_.front().narrow(0, 0, parts * part_elements_));
  if (checks_.audited) add_received();
  return {};
}

void Shipment::add_sent(size_t piece) {
  std::vector<DigestRun> runs;
  for (size_t m = 0; m < leg_->members(); ++m)
    runs.push_back(run_of(static_cast<int64_t>(m) * part_elements_, part_elements_, piece));
  const std::vector<uint64_t> sums = digests_of(mine_[piece], runs);
  for (size_t m = 0; m < sums.size(); ++m) digests_.sent[m] += sums[m];
}

// The host waits for the device once a buffer, not once a part.
void Shipment::add_received() {
  for (size_t piece = 0; piece < received_.size(); ++piece) {
    std::vector<DigestRun> runs;
    std::vector<size_t> members;  // whose parts the buffer has, in order
    for (size_t m = 0; m < leg_->members(); ++m) {
      if (piece >= leg_->of(m).size()) continue;
      runs.push_back(run_of(std::ssize(runs) * part_elements_, part_elements_, piece));
      members.push_back(m);
    }
    const std::vector<uint64_t> sums = digests_of(received_[piece], runs);
    for (size_t i = 0; i < sums.size(); ++i) digests_.received[members[i]] += sums[i];
  }
}

ShippedDigests Shipment::take_digests() {
  const std::vector<uint64_t> none(static_cast<size_t>(group_.world_size()));
  return std::exchange(digests_, {none, none});
}

std::vector<at::Tensor> Shipment::finish() {
  LOCKSTEP_CHECK(pending_.empty(), pending_.size(), " messages were not waited for");
  if (under_way() && leg_->buffers() > 0)
    for (at::Tensor& t : received_) pool_.give_tensor(t);
  received_.clear();
  leg_ = nullptr;
  return std::exchange(mine_, {});
}

}  // namespace lockstep::core
