#include "core/sharding/schedule.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "core/comm/interruption.h"

namespace lockstep::core {
namespace {

bool contains(const std::vector<Unit*>& list, const Unit* value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Exchanges under way at once: one travels, and one is folded, while the next unit computes.
constexpr size_t kMaxTravelling = 2;

}  // namespace

Schedule::Schedule(std::vector<UnitPart> parts, StageSequence& model, const Strategy& strategy,
                   const SlotMap& map, int rank)
    : parts_(std::move(parts)),
      model_(model),
      strategy_(strategy),
      map_(map),
      rank_(rank),
      train_plan_(make_plan(true)),
      forward_plan_(make_plan(false)) {}

Schedule::Item Schedule::item_of(const std::vector<int>& parts, bool needs_weights) const {
  Item item;
  for (int p : parts) {
    item.parts.push_back(parts_[static_cast<size_t>(p)]);
    Unit* unit = &item.parts.back().unit();
    if (needs_weights && !contains(item.gathered, unit)) item.gathered.push_back(unit);
  }
  return item;
}

Schedule::Plan Schedule::make_plan(bool train) const {
  Plan plan;
  for (const auto& stage : model_.stages) plan.push_back(item_of(stage->units(), true));
  plan.push_back(item_of(model_.loss->units(), true));
  if (!train) return plan;
  for (auto stage = model_.stages.rbegin(); stage != model_.stages.rend(); ++stage)
    plan.push_back(item_of((*stage)->units(), (*stage)->backward_needs_weights()));
  add_finished(plan);
  return plan;
}

// A unit's gradient is complete when that of its last part is.
void Schedule::add_finished(Plan& plan) const {
  const size_t loss = model_.stages.size();
  std::vector<Unit*> order;
  std::map<Unit*, size_t> last;
  auto mark = [&](size_t item, const std::vector<int>& parts) {
    for (int p : parts) {
      Unit* unit = &parts_[static_cast<size_t>(p)].unit();
      if (unit->frozen()) continue;
      if (!last.contains(unit)) order.push_back(unit);
      last[unit] = item;
    }
  };
  mark(loss, model_.loss->finished_units());
  for (size_t k = 0; k < loss; ++k)
    mark(loss + 1 + k, model_.stages[loss - 1 - k]->finished_units());
  for (Unit* unit : order) plan[last[unit]].finished.push_back(unit);
}

PhaseTimer Schedule::timer(double& seconds, const char* phase, const std::string& part) {
  return {system_clock(), seconds, trace_, phase, part};
}

void Schedule::prefetch(const Plan& plan, size_t item) {
  if (item < plan.size())
    for (Unit* unit : plan[item].gathered) unit->start_gather();
}

// A rank may be far ahead of what it next waits for: a generation that is over ends here, too.
Result<void> Schedule::enter(const Plan& plan, size_t item, bool prefetch_next) {
  if (interrupted()) return Error{Code::kPeerLost, "this generation is over"};
  const PhaseTimer watch = timer(times_.gather_wait, "gather", plan[item].name());
  prefetch(plan, item);
  if (prefetch_next) prefetch(plan, item + 1);
  for (Unit* unit : plan[item].gathered) LOCKSTEP_RETURN_IF_ERROR(unit->finish_gather());
  return {};
}

// A unit that one of the next two items needs stays: the last block's forward is soon followed by
// its backward.
void Schedule::leave(const Plan& plan, size_t item) {
  if (strategy_.keep_gathered) return;
  for (Unit* unit : plan[item].gathered) {
    const bool soon = (item + 1 < plan.size() && contains(plan[item + 1].gathered, unit)) ||
                      (item + 2 < plan.size() && contains(plan[item + 2].gathered, unit));
    if (!soon) unit->release();
  }
}

void Schedule::release_all() {
  for (UnitPart& part : parts_) part.unit().release();
}

Result<at::Tensor> Schedule::run_forward(const Plan& plan, const std::optional<SlotInput>& slot,
                                         bool keep) {
  at::Tensor x;
  for (size_t i = 0; i < model_.stages.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(enter(plan, i, strategy_.forward_prefetch));
    if (slot) {
      const PhaseTimer watch = timer(times_.forward, "forward", plan[i].name());
      x = model_.stages[i]->forward(plan[i].parts, x, *slot, keep);
    }
    leave(plan, i);
  }
  LOCKSTEP_RETURN_IF_ERROR(enter(plan, model_.stages.size(),
                                 keep && strategy_.backward_prefetch == BackwardPrefetch::kPre));
  return x;
}

Result<void> Schedule::exchange(const std::vector<Unit*>& finished, int64_t round) {
  if (finished.empty()) return {};
  const PhaseTimer watch = timer(times_.exchange_wait, "exchange", finished.front()->spec().name);
  while (!travelling_.empty() && travelling_.size() + finished.size() > kMaxTravelling) {
    LOCKSTEP_RETURN_IF_ERROR(travelling_.front()->finish_exchange());
    travelling_.pop_front();
  }
  for (Unit* unit : travelling_) LOCKSTEP_RETURN_IF_ERROR(unit->advance_exchange());
  for (Unit* unit : finished) {
    unit->start_exchange(map_, round);
    travelling_.push_back(unit);
  }
  return {};
}

Result<void> Schedule::finish_exchanges() {
  if (travelling_.empty()) return {};
  const PhaseTimer watch =
      timer(times_.exchange_wait, "exchange", travelling_.front()->spec().name);
  for (Unit* unit : travelling_) LOCKSTEP_RETURN_IF_ERROR(unit->finish_exchange());
  travelling_.clear();
  return {};
}

Result<void> Schedule::finish_step() {
  LOCKSTEP_RETURN_IF_ERROR(finish_exchanges());
  release_all();
  return {};
}

Result<void> Schedule::run_backward(const std::optional<SlotInput>& slot, at::Tensor dx,
                                    int64_t round) {
  const Plan& plan = train_plan_;
  const size_t stage_count = model_.stages.size();
  for (size_t k = 0; k < stage_count; ++k) {
    const size_t item = stage_count + 1 + k;
    LOCKSTEP_RETURN_IF_ERROR(
        enter(plan, item, strategy_.backward_prefetch == BackwardPrefetch::kPre));
    if (slot) {
      const PhaseTimer watch = timer(times_.backward, "backward", plan[item].name());
      dx = model_.stages[stage_count - 1 - k]->backward(plan[item].parts, dx, *slot);
    }
    if (strategy_.backward_prefetch == BackwardPrefetch::kPost) prefetch(plan, item + 1);
    leave(plan, item);
    LOCKSTEP_RETURN_IF_ERROR(exchange(plan[item].finished, round));
  }
  return {};
}

Result<SlotLoss> Schedule::train_slot(const std::optional<SlotInput>& slot, int64_t round) {
  const Plan& plan = train_plan_;
  const size_t loss = model_.stages.size();
  LOCKSTEP_CHECK(slot.has_value() == map_.slot(round, rank_).has_value(), "round ", round);
  LOCKSTEP_TRY(at::Tensor x, run_forward(plan, slot, true));
  // The last round's exchanges ran under this forward; a tied weight's gradient begins at the head.
  LOCKSTEP_RETURN_IF_ERROR(finish_exchanges());
  LossStage::Output head;
  if (slot) {
    const PhaseTimer watch = timer(times_.backward, "backward", plan[loss].name());
    head = model_.loss->run(plan[loss].parts, x, *slot, true);
    x.reset();
  }
  if (strategy_.backward_prefetch == BackwardPrefetch::kPost) prefetch(plan, loss + 1);
  leave(plan, loss);
  LOCKSTEP_RETURN_IF_ERROR(exchange(plan[loss].finished, round));
  LOCKSTEP_RETURN_IF_ERROR(run_backward(slot, std::move(head.dx), round));
  return head.loss;
}

Result<SlotLoss> Schedule::evaluate_slot(const std::optional<SlotInput>& slot) {
  LOCKSTEP_TRY(at::Tensor x, run_forward(forward_plan_, slot, false));
  LossStage::Output head;
  if (slot) head = model_.loss->run(forward_plan_.back().parts, x, *slot, false);
  leave(forward_plan_, forward_plan_.size() - 1);
  return head.loss;
}

Result<at::Tensor> Schedule::forward_only(const SlotInput& slot) {
  return run_forward(forward_plan_, slot, false);
}

}  // namespace lockstep::core
