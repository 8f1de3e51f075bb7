#include "model_spec/memory_walk.h"

#include <algorithm>
#include <deque>

#include "model_spec/memory_stages.h"
#include "model_spec/memory_units.h"

namespace lockstep::model_spec {
namespace {

constexpr int64_t kFloat = 4, kDouble = 8;

class Walk {
 public:
  Walk(const Config& config, const ModelSpec& spec, int64_t world_size, MemoryLedger& ledger)
      : config_(config),
        spec_(spec),
        spread_(Spread::create(config, world_size)),
        ledger_(ledger),
        pool_(ledger),
        stages_(config, spec, ledger) {
    for (const UnitSpec& unit : spec.units) units_.emplace_back(unit, spread_, ledger, pool_);
    make_plan();
  }
  void step() {
    const int64_t w = spread_.world_size, rounds = (config_.slots() + w - 1) / w;
    for (int64_t round = 0; round < std::min<int64_t>(rounds, 2); ++round) train_slot();
    share_sums();
    fold_and_norm();
    update();
  }

 private:
  using Plan = std::vector<std::vector<size_t>>;

  // Schedule::make_plan: stages forward, the loss, and stages backward that need weights.
  void make_plan() {
    const size_t last = units_.size() - 1;
    for (size_t i = 0; i < last; ++i) plan_.push_back({i});
    plan_.push_back(spec_.shape.tied ? std::vector<size_t>{last, 0} : std::vector<size_t>{last});
    for (size_t i = last - 1; i > 0; --i) plan_.push_back({i});
    plan_.push_back({});
  }

  // Schedule::enter
  void enter(size_t item, bool prefetch) {
    for (size_t u : plan_[item]) units_[u].start_gather();
    if (prefetch && item + 1 < plan_.size())
      for (size_t u : plan_[item + 1]) units_[u].start_gather();
  }

  // Schedule::leave
  void leave(size_t item) {
    const auto needs = [&](size_t later, size_t u) {
      return later < plan_.size() && std::count(plan_[later].begin(), plan_[later].end(), u) > 0;
    };
    for (size_t u : plan_[item])
      if (!needs(item + 1, u) && !needs(item + 2, u)) units_[u].release();
  }

  // Schedule::exchange, kMaxTravelling
  void exchange(size_t finished) {
    constexpr size_t kMaxTravelling = 2;
    while (!travelling_.empty() && travelling_.size() + 1 > kMaxTravelling) finish_oldest();
    units_[finished].start_exchange();
    travelling_.push_back(finished);
  }
  void finish_oldest() {
    units_[travelling_.front()].finish_exchange();
    travelling_.pop_front();
  }
  void finish_exchanges() {
    while (!travelling_.empty()) finish_oldest();
  }

  // Schedule::train_slot
  void train_slot() {
    const Config::Parallelism& p = config_.parallelism;
    const bool backward_prefetch = p.backward_prefetch != "NONE";
    const size_t head = units_.size() - 1;
    const Held input(ledger_, MemoryUse::kShared, stages_.input_bytes());
    for (size_t i = 0; i < head; ++i) {
      enter(i, p.forward_prefetch);
      if (i == 0) {
        stages_.embedding_forward();
      } else {
        stages_.layer_forward(units_[i], static_cast<int64_t>(i) - 1);
      }
      leave(i);
    }
    enter(head, backward_prefetch);
    finish_exchanges();
    stages_.head(units_[head], spec_.shape.tied ? units_[0] : units_[head]);
    ledger_.drop(MemoryUse::kActivations, stages_.x_bytes());  // x.reset()
    leave(head);
    exchange(head);
    for (size_t i = head - 1; i + 1 > 0; --i) {
      const size_t item = 2 * head - i;
      enter(item, backward_prefetch);
      if (i == 0) {
        stages_.embedding_backward(units_[0]);
      } else {
        stages_.layer_backward(units_[i], static_cast<int64_t>(i) - 1);
        // dx = stage.backward(dx): the one before goes, but head.dx stays to the end of the slot.
        if (i + 1 < head) ledger_.drop(MemoryUse::kWork, stages_.x_bytes());
      }
      leave(item);
      exchange(i);
    }
    ledger_.drop(MemoryUse::kWork, 2 * stages_.x_bytes());
  }

  // TrainingStep::share_sums: every slot's loss and tokens, and the ranks' flags
  void share_sums() {
    ledger_.at("end of the round");
    const int64_t width = 2 * config_.slots() + 6;
    const Held sums(ledger_, MemoryUse::kShared, width * kDouble * (1 + spread_.world_size));
    finish_exchanges();
  }

  // TrainingStep::fold_and_norm: a double for each tile
  void fold_and_norm() {
    ledger_.at("gradient norm");
    int64_t tiles = 0;
    for (const UnitMemory& unit : units_) tiles += unit.tiles_per_rank();
    const Held norms(ledger_, MemoryUse::kShared, tiles * kDouble * (1 + spread_.world_size));
  }

  // TrainingStep::update: replicated state takes the whole sum, this unit's and the next one's
  void update() {
    ledger_.at("update");
    if (!spread_.replicate_state || spread_.world_size == 1) return;
    for (size_t i = 0; i < units_.size(); ++i) {
      const int64_t next = i + 1 < units_.size() ? units_[i + 1].padded_elements() : 0;
      const Held whole(ledger_, MemoryUse::kUpdate,
                       (units_[i].padded_elements() + next) * kFloat);
    }
  }

  const Config& config_;
  const ModelSpec& spec_;
  Spread spread_;
  MemoryLedger& ledger_;
  PoolMemory pool_;
  StageMemory stages_;
  std::vector<UnitMemory> units_;
  Plan plan_;
  std::deque<size_t> travelling_;
};

}  // namespace

MemoryLedger walk_training(const Config& config, const ModelSpec& spec, int64_t world_size) {
  MemoryLedger ledger;
  Walk walk(config, spec, world_size, ledger);
  for (int step = 0; step < 2; ++step) walk.step();
  return ledger;
}

}  // namespace lockstep::model_spec
