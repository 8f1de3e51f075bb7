#include "core/sharding/schedule.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep::core {
namespace {

// Adds the time from construction to destruction to `seconds`.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), start_(system_clock().monotonic_s()) {}
  ~Stopwatch() { seconds_ += system_clock().monotonic_s() - start_; }

 private:
  double& seconds_;
  double start_;
};

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Exchanges under way at once: one travels, and one is folded, while the next unit computes.
constexpr size_t kMaxTravelling = 2;

}  // namespace

Schedule::Schedule(std::vector<UnitPart> parts, StageSequence& model, const Strategy& strategy,
                   int rank, int world_size)
    : parts_(std::move(parts)),
      model_(model),
      strategy_(strategy),
      rank_(rank),
      world_size_(world_size),
      train_plan_(make_plan(true)),
      forward_plan_(make_plan(false)) {}

Schedule::Plan Schedule::make_plan(bool train) const {
  Plan plan;
  for (const auto& stage : model_.stages) plan.push_back(stage->units());
  plan.push_back(model_.loss->units());
  if (!train) return plan;
  for (auto stage = model_.stages.rbegin(); stage != model_.stages.rend(); ++stage)
    plan.push_back((*stage)->backward_needs_weights() ? (*stage)->units() : std::vector<int>{});
  return plan;
}

std::vector<UnitPart> Schedule::pick(const std::vector<int>& indices) const {
  std::vector<UnitPart> picked;
  for (int i : indices) picked.push_back(parts_[static_cast<size_t>(i)]);
  return picked;
}

Result<void> Schedule::enter(const Plan& plan, size_t item, bool prefetch) {
  Stopwatch watch(times_.gather_wait);
  for (int u : plan[item]) parts_[static_cast<size_t>(u)].unit().start_gather();
  if (prefetch && item + 1 < plan.size())
    for (int u : plan[item + 1]) parts_[static_cast<size_t>(u)].unit().start_gather();
  for (int u : plan[item])
    LOCKSTEP_RETURN_IF_ERROR(parts_[static_cast<size_t>(u)].unit().finish_gather());
  return {};
}

// A unit that one of the next two items needs stays: the last block's forward is soon followed by
// its backward.
void Schedule::leave(const Plan& plan, size_t item) {
  for (int u : plan[item]) {
    const bool soon = (item + 1 < plan.size() && contains(plan[item + 1], u)) ||
                      (item + 2 < plan.size() && contains(plan[item + 2], u));
    if (!soon) parts_[static_cast<size_t>(u)].unit().release();
  }
}

Result<at::Tensor> Schedule::run_forward(const Plan& plan, const std::optional<SlotInput>& slot,
                                         bool keep) {
  at::Tensor x;
  for (size_t i = 0; i < model_.stages.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(enter(plan, i, strategy_.forward_prefetch));
    if (slot) {
      Stopwatch watch(times_.forward);
      std::vector<UnitPart> mine = pick(plan[i]);
      x = model_.stages[i]->forward(mine, x, *slot, keep);
    }
    leave(plan, i);
  }
  LOCKSTEP_RETURN_IF_ERROR(enter(plan, model_.stages.size(), keep && strategy_.backward_prefetch));
  return x;
}

Result<void> Schedule::exchange(const std::vector<int>& finished, int active) {
  while (!travelling_.empty() && travelling_.size() + finished.size() > kMaxTravelling) {
    Stopwatch watch(times_.exchange_wait);
    const size_t oldest = static_cast<size_t>(travelling_.front());
    LOCKSTEP_RETURN_IF_ERROR(parts_[oldest].unit().finish_exchange());
    travelling_.erase(travelling_.begin());
  }
  for (int u : finished) {
    parts_[static_cast<size_t>(u)].unit().start_exchange(active);
    travelling_.push_back(u);
  }
  return {};
}

Result<void> Schedule::finish_exchanges() {
  Stopwatch watch(times_.exchange_wait);
  for (int u : travelling_)
    LOCKSTEP_RETURN_IF_ERROR(parts_[static_cast<size_t>(u)].unit().finish_exchange());
  travelling_.clear();
  return {};
}

Result<SlotLoss> Schedule::train_slot(const std::optional<SlotInput>& slot, int active) {
  const Plan& plan = train_plan_;
  const size_t stage_count = model_.stages.size();
  LOCKSTEP_CHECK(slot.has_value() == (rank_ < active), "rank ", rank_, " of ", active, " active");
  LOCKSTEP_TRY(at::Tensor x, run_forward(plan, slot, true));
  // The last round's exchanges ran under this forward; a tied weight's gradient begins at the head.
  LOCKSTEP_RETURN_IF_ERROR(finish_exchanges());
  LossStage::Output head;
  if (slot) {
    Stopwatch watch(times_.backward);
    std::vector<UnitPart> mine = pick(plan[stage_count]);
    head = model_.loss->run(mine, x, *slot, true);
    x.reset();
  }
  leave(plan, stage_count);
  LOCKSTEP_RETURN_IF_ERROR(exchange(model_.loss->finished_units(), active));
  at::Tensor dx = head.dx;
  for (size_t k = 0; k < stage_count; ++k) {
    const size_t item = stage_count + 1 + k;
    Stage& stage = *model_.stages[stage_count - 1 - k];
    LOCKSTEP_RETURN_IF_ERROR(enter(plan, item, strategy_.backward_prefetch));
    if (slot) {
      Stopwatch watch(times_.backward);
      std::vector<UnitPart> mine = pick(stage.units());
      dx = stage.backward(mine, dx, *slot);
    }
    leave(plan, item);
    LOCKSTEP_RETURN_IF_ERROR(exchange(stage.finished_units(), active));
  }
  return head.loss;
}

Result<SlotLoss> Schedule::evaluate_slot(const std::optional<SlotInput>& slot) {
  LOCKSTEP_TRY(at::Tensor x, run_forward(forward_plan_, slot, false));
  LossStage::Output head;
  if (slot) {
    std::vector<UnitPart> mine = pick(forward_plan_.back());
    head = model_.loss->run(mine, x, *slot, false);
  }
  leave(forward_plan_, forward_plan_.size() - 1);
  return head.loss;
}

Result<at::Tensor> Schedule::forward_only(const SlotInput& slot) {
  return run_forward(forward_plan_, slot, false);
}

}  // namespace lockstep::core
