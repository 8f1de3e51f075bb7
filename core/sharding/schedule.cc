#include "core/sharding/schedule.h"

#include <algorithm>

#include "base/check.h"
#include "core/audit/bit_flip.h"
#include "core/comm/interruption.h"

namespace lockstep::core {

using layout::Pass;
using layout::RoundItem;
using layout::RoundPlan;

Schedule::Schedule(std::vector<UnitPart> parts, StageSequence& model, const Strategy& strategy,
                   int rank, PhaseWatch& watch)
    : model_(model), strategy_(strategy), rank_(rank), watch_(watch) {
  std::vector<layout::UnitPlace> places;
  for (const UnitPart& part : parts) {
    if (units_.empty() || units_.back() != &part.unit()) units_.push_back(&part.unit());
    places.push_back({static_cast<int>(units_.size()) - 1, part.spec().frozen});
  }
  for (const layout::StageUnits& stage : model.units) {
    stages_.emplace_back();
    for (const int u : stage.units) stages_.back().push_back(parts[static_cast<size_t>(u)]);
  }
  LOCKSTEP_CHECK(stages_.size() == model.stages.size() + 1 && places.size() == parts.size(),
                 stages_.size(), " stages with units, ", model.stages.size(), " before the loss");
  training_ = RoundPlan::training(model.units, places, strategy);
  evaluation_ = RoundPlan::evaluation(model.units, places, strategy);
}

const std::string& Schedule::name_of(const RoundItem& item) const {
  return stages_[item.stage].front().spec().name;
}

// A rank may be far ahead of what it next waits for: a generation that is over ends here, too.
Result<void> Schedule::enter(const RoundItem& item) {
  if (interrupted()) return Error{Code::kPeerLost, "this generation is over"};
  const PhaseSpan time = span(StepPhase::kGatherWait, name_of(item));
  for (const int u : item.gather) unit(u).params.start();
  for (const int u : item.needed) {
    LOCKSTEP_RETURN_IF_ERROR(unit(u).params.finish());
    flip_gathered(u);
  }
  return {};
}

// Its parameters are sites of bit flips (core/audit/bit_flip.h), among those of all units.
void Schedule::flip_gathered(int gathered) const {
  size_t before = 0, sites = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    if (static_cast<int>(u) == gathered) before = sites;
    sites += units_[u]->spec.params.size();
  }
  const Unit& unit = *units_[static_cast<size_t>(gathered)];
  for (size_t i = 0; i < unit.spec.params.size(); ++i)
    flip_site(FlipIn::kGathered, before + i, sites, unit.params.weight(static_cast<int>(i)),
              unit.spec.name);
}

void Schedule::compute(const RoundItem& item, const SlotInput& slot, bool train, Flow& flow) {
  const bool forward = item.pass == Pass::kForward;
  const PhaseSpan time =
      span(forward || !train ? StepPhase::kForward : StepPhase::kBackward, name_of(item));
  const UnitParts parts = stages_[item.stage];
  const bool first = item.stage == 0;
  LOCKSTEP_CHECK(item.pass == Pass::kBackward ? flow.dx.defined() : flow.x.defined() != first,
                 name_of(item), " begins without what the stage before gives");
  if (item.pass == Pass::kLoss) {
    LossStage::Output head = model_.loss->run(parts, flow.x, slot, train);
    flow = {{}, std::move(head.dx), head.loss};
    return;
  }
  Stage& stage = *model_.stages[item.stage];
  if (forward) {
    flow.x = stage.forward(parts, flow.x, slot, train);
    flip_site(FlipIn::kActivation, item.stage, model_.stages.size(), flow.x);
  } else {
    flow.dx = stage.backward(parts, flow.dx, slot);
    if (item.stage > 0)  // the first one gives none
      flip_site(FlipIn::kInputGradient, item.stage - 1, model_.stages.size() - 1, flow.dx);
  }
}

void Schedule::release(const RoundItem& item, bool audited) {
  for (const int u : item.gather_after) unit(u).params.start();
  for (const int u : item.release) {
    if (audited) note_received(u);
    unit(u).params.release();
  }
}

void Schedule::note_received(int gathered) {
  const at::Tensor whole = unit(gathered).params.arrived();
  if (!whole.defined()) return;
  const PhaseSpan time = span(StepPhase::kAudit, unit(gathered).spec.name);
  received_.push_back(
      {static_cast<size_t>(gathered), fingerprints_of_received(unit(gathered), rank_)});
}

std::vector<ReceivedUnit> Schedule::take_received() {
  for (size_t u = 0; u < units_.size(); ++u) note_received(static_cast<int>(u));
  return std::exchange(received_, {});
}

Result<void> Schedule::exchange(const RoundItem& item, std::vector<uint64_t>* digests,
                                bool audited) {
  if (item.start.empty()) return {};
  if (digests != nullptr && exchange_->slot)
    for (const int u : item.start) digests->push_back(unit(u).grads.digest());
  const PhaseSpan time = span(StepPhase::kExchangeWait, unit(item.start.front()).spec.name);
  for (const int u : item.finish) LOCKSTEP_RETURN_IF_ERROR(unit(u).grads.finish());
  for (const int u : item.advance) LOCKSTEP_RETURN_IF_ERROR(unit(u).grads.advance());
  for (const int u : item.start)
    unit(u).grads.start(exchange_, {audited, static_cast<size_t>(u), units_.size()});
  return {};
}

void Schedule::release_all() {
  for (Unit* one : units_) {
    one->params.release();
    one->params.forget();
  }
}

Result<void> Schedule::finish_exchanges() {
  const std::vector<int>& travelling = training_.travelling;
  if (std::none_of(travelling.begin(), travelling.end(),
                   [&](int u) { return unit(u).grads.under_way(); }))
    return {};
  const PhaseSpan time = span(StepPhase::kExchangeWait, unit(travelling.front()).spec.name);
  for (const int u : travelling) LOCKSTEP_RETURN_IF_ERROR(unit(u).grads.finish());
  return {};
}

Result<void> Schedule::finish_step() {
  LOCKSTEP_RETURN_IF_ERROR(finish_exchanges());
  for (const Unit* one : units_)
    LOCKSTEP_CHECK(!one->grads.under_way(), one->spec.name, " travels after its step");
  next_round_ = 0;
  release_all();
  return {};
}

Result<double> Schedule::train_slot(const std::optional<SlotInput>& slot, int64_t round,
                                    std::vector<uint64_t>* digests, bool audits_exchange) {
  exchange_ = std::make_shared<const layout::ExchangePlan>(
      layout::ExchangePlan::create(strategy_, round, rank_));
  LOCKSTEP_CHECK(slot.has_value() == exchange_->slot.has_value(), "round ", round);
  LOCKSTEP_CHECK(round == next_round_ || round == 0, "round ", round, " comes when round ",
                 next_round_, " is due");
  next_round_ = round + 1;
  return train_round(slot, /*audited=*/digests != nullptr, [&](const RoundItem& item) {
    return exchange(item, digests, audits_exchange);
  });
}

Result<double> Schedule::audit_slot(const std::optional<SlotInput>& slot,
                                    std::vector<uint64_t>& digests) {
  return train_round(slot, /*audited=*/true, [&](const RoundItem& item) -> Result<void> {
    if (!slot) return {};
    for (const int u : item.start) {
      digests.push_back(unit(u).grads.digest());
      unit(u).grads.discard();
    }
    return {};
  });
}

Result<double> Schedule::train_round(const std::optional<SlotInput>& slot, bool audited,
                                     const std::function<Result<void>(const RoundItem&)>& leave) {
  Flow flow;
  for (const RoundItem& item : training_.items) {
    LOCKSTEP_RETURN_IF_ERROR(enter(item));
    // The last round's exchanges ran under this forward; a tied weight's gradient begins at the
    // head.
    if (item.pass == Pass::kLoss) LOCKSTEP_RETURN_IF_ERROR(finish_exchanges());
    if (slot) compute(item, *slot, /*train=*/true, flow);
    release(item, audited);
    LOCKSTEP_RETURN_IF_ERROR(leave(item));
  }
  return flow.loss;
}

std::vector<std::string> Schedule::exchanged_units() const {
  std::vector<std::string> names;
  for (const RoundItem& item : training_.items)
    for (const int u : item.start) names.push_back(units_[static_cast<size_t>(u)]->spec.name);
  return names;
}

Result<double> Schedule::evaluate_slot(const std::optional<SlotInput>& slot) {
  Flow flow;
  for (const RoundItem& item : evaluation_.items) {
    LOCKSTEP_RETURN_IF_ERROR(enter(item));
    if (slot) compute(item, *slot, /*train=*/false, flow);
    release(item);
  }
  return flow.loss;
}

Result<at::Tensor> Schedule::forward_only(const SlotInput& slot) {
  Flow flow;
  for (const RoundItem& item : evaluation_.items) {
    LOCKSTEP_RETURN_IF_ERROR(enter(item));
    if (item.pass == Pass::kLoss) break;
    compute(item, slot, /*train=*/false, flow);
    release(item);
  }
  return std::move(flow.x);
}

}  // namespace lockstep::core
