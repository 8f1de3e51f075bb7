#include "core/sharding/grad_exchange.h"

#include <ATen/ops/zeros.h>

#include <numeric>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "core/kernels/kernel_table.h"

namespace lockstep::core {

GradExchange::GradExchange(const layout::UnitSpec& spec, const layout::ShardLayout& layout,
                           const Strategy& strategy, const Groups& groups, Pools& pools)
    : spec_(spec),
      strategy_(strategy),
      groups_(groups),
      pool_(pools.exchanged),
      layout_(layout),
      offsets_(layout::param_offsets(spec)),
      sums_(spec.params.size()),
      sum_begun_(spec.params.size(), false),
      in_group_(*groups.group, pools.exchanged, FlipIn::kFromGroup),
      among_groups_(*groups.peers, pools.exchanged, FlipIn::kFromGroups),
      of_rank_(layout.padded_elements(), Reduction::kTree, pools.sums),
      of_group_(layout.joint_elements(), Reduction::kTree, pools.sums),
      of_all_(layout.owned_elements(), strategy.reduction, pools.sums) {}

void GradExchange::begin() {
  if (send_U_.defined()) return;
  LOCKSTEP_CHECK(!spec_.frozen && !under_way(), "unit ", spec_.name,
                 " is frozen, or its exchange is under way");
  send_U_ = pool_.take_tensor(layout_.padded_elements(), strategy_.compute());
  for (size_t i = 0; i < offsets_.size(); ++i) {
    const int64_t from = offsets_[i] + spec_.params[i].elements(),
                  to = i + 1 < offsets_.size() ? offsets_[i + 1] : send_U_.numel();
    if (to > from) send_U_.narrow(0, from, to - from).zero_();
  }
}

at::Tensor GradExchange::grad(int param) {
  begin();
  const size_t i = static_cast<size_t>(param);
  LOCKSTEP_CHECK(i < offsets_.size(), "parameter ", param, " of ", offsets_.size(), " of ",
                 spec_.name);
  const layout::ParamSpec& p = spec_.params[i];
  return send_U_.narrow(0, offsets_[i], p.elements()).view(p.shape);
}

at::Tensor GradExchange::grad_sum(int param) {
  const size_t i = static_cast<size_t>(param);
  const layout::ParamSpec& p = spec_.params[i];
  if (spec_.frozen)
    return at::zeros(p.shape, at::TensorOptions(at::kFloat).device(strategy_.device));
  if (strategy_.bf16 && !sums_[i].defined())
    sums_[i] = pool_.take_tensor(p.elements(), at::kFloat).view(p.shape);
  at::Tensor sum = strategy_.bf16 ? sums_[i] : grad(param);
  if (!sum_begun_[i]) sum.zero_();
  sum_begun_[i] = true;
  return sum;
}

void GradExchange::round_sums() {
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (sums_[i].defined()) kernels_on(sums_[i]).narrow(grad(static_cast<int>(i)), sums_[i]);
    pool_.give_tensor(sums_[i]);
    sum_begun_[i] = false;
  }
}

uint64_t GradExchange::digest() {
  round_sums();
  LOCKSTEP_CHECK(send_U_.defined(), "unit ", spec_.name, " has no gradients");
  std::vector<DigestRun> runs;
  for (size_t i = 0; i < offsets_.size(); ++i)
    runs.push_back({offsets_[i], spec_.params[i].elements(), xxh3_64(spec_.params[i].name)});
  const std::vector<uint64_t> sums = digests_of(send_U_, runs);
  return std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

void GradExchange::discard() {
  LOCKSTEP_CHECK(!under_way(), "gradients of ", spec_.name, " are thrown away while they travel");
  pool_.give_tensor(send_U_);
}

at::Tensor GradExchange::folded() {
  LOCKSTEP_CHECK(!under_way() && !send_U_.defined(), "the sum of ", spec_.name,
                 " is read while its gradients travel");
  return of_all_.result();
}

void GradExchange::start(std::shared_ptr<const layout::ExchangePlan> plan,
                         const ExchangeChecks& checks) {
  round_sums();
  LOCKSTEP_CHECK(send_U_.defined() == plan->slot.has_value(), "rank ", groups_.world->rank(),
                 " unit ", spec_.name);
  LOCKSTEP_CHECK(!under_way() && !relayed_, "two exchanges of ", spec_.name, " at once");
  if (plan->sums_slots) {
    if (plan->slot) of_rank_.push(send_U_, {*plan->slot, 1});
    of_rank_.end_round();
    pool_.give_tensor(send_U_);
  }
  if (!plan->travels) return;
  plan_ = std::move(plan);
  checks_ = checks;
  if (plan_->native) return start_native();
  std::vector<at::Tensor> mine;
  if (plan_->sums_slots)
    mine = of_rank_.take_partials();
  else if (plan_->slot)
    mine.push_back(send_U_);
  in_group_.start(std::move(mine), plan_->in_group, layout_.joint_elements(), checks_);
}

void GradExchange::start_native() {
  native_U_ = send_U_.defined() ? send_U_.to(at::kFloat, false, true)
                                : at::zeros({layout_.padded_elements()},
                                            at::TensorOptions(at::kFloat).device(strategy_.device));
  native_ = groups_.world->all_reduce_sum(native_U_);
}

Result<void> GradExchange::finish_native() {
  if (auto done = native_->wait(); !done.ok())
    return done.error().in(text("adding gradients of unit ", spec_.name));
  native_.reset();
  const int64_t owned = layout_.owned_elements();
  of_all_.push(native_U_.narrow(0, layout_.part_of(groups_.world->rank()) * owned, owned),
               plan_->round);
  of_all_.end_round();
  native_U_.reset();
  pool_.give_tensor(send_U_);
  plan_.reset();
  return {};
}

Result<void> GradExchange::advance() {
  if (!under_way() || relayed_ || !plan_->relays()) return {};
  if (auto done = in_group_.wait(); !done.ok())
    return done.error().in(text("exchanging gradients of unit ", spec_.name));
  relayed_ = true;
  std::vector<at::Tensor> mine;
  in_group_.for_each([&](const at::Tensor& part, const SlotRun& run) {
    if (plan_->sums_in_group)
      of_group_.push(part, run);
    else
      mine.push_back(part);
  });
  of_group_.end_round();
  if (!plan_->crosses) return {};
  if (plan_->sums_in_group) mine = of_group_.take_partials();
  among_groups_.start(std::move(mine), plan_->among_groups, layout_.owned_elements(), checks_);
  return {};
}

Result<void> GradExchange::finish() {
  if (!under_way()) return {};
  if (plan_->native) return finish_native();
  LOCKSTEP_RETURN_IF_ERROR(advance());
  if (plan_->crosses) {
    Shipment& last = plan_->two_legs() ? among_groups_ : in_group_;
    if (auto done = last.wait(); !done.ok())
      return done.error().in(text("exchanging gradients of unit ", spec_.name));
    last.for_each([&](const at::Tensor& part, const SlotRun& run) { of_all_.push(part, run); });
    of_all_.end_round();
  }
  std::vector<at::Tensor> sums = among_groups_.finish();
  if (plan_->sums_in_group) of_group_.give_back(std::move(sums));
  sums = in_group_.finish();
  LOCKSTEP_CHECK(!in_group_.under_way() && !among_groups_.under_way(), spec_.name,
                 " travels after its end");
  if (plan_->sums_slots) of_rank_.give_back(std::move(sums));
  pool_.give_tensor(send_U_);
  plan_.reset();
  relayed_ = false;
  return {};
}

}  // namespace lockstep::core
