#include "layout/memory_walk.h"

#include <algorithm>
#include <deque>
#include <map>

#include "layout/memory_stages.h"
#include "layout/memory_units.h"
#include "layout/wrap.h"

namespace lockstep::layout {
namespace {

constexpr int64_t kFloat = 4, kDouble = 8;

class Walk {
 public:
  Walk(const Config& config, const ModelSpec& spec, const Spread& spread, MemoryLedger& ledger)
      : config_(config),
        spec_(spec),
        spread_(spread),
        ledger_(ledger),
        pool_(ledger),
        stages_(config, spec, ledger),
        wrapped_(wrap(spec, config.parallelism.wrap_policy, config.parallelism.min_num_params)) {
    units_.reserve(wrapped_.size());
    for (const WrappedUnit& run : wrapped_) {
      units_.emplace_back(run.spec, spread, ledger, pool_);
      for (size_t i = 0; i < run.first_params.size(); ++i)
        parts_.push_back({&units_.back(), run.first_params[i],
                          &spec.units[static_cast<size_t>(run.first_unit) + i]});
    }
    make_plan();
  }

  // TrainingStep::run. The last round of two stands for all later ones.
  void step() {
    for (int64_t round = 0; round < std::min<int64_t>(spread_.rounds, 2); ++round)
      train_slot(round + 1 == std::min<int64_t>(spread_.rounds, 2));
    share_sums();
    fold_and_norm();
    update();
  }

 private:
  // What an item needs gathered, and whose gradient is complete after it.
  struct Item {
    std::vector<UnitMemory*> gathered, finished;
  };

  size_t head() const { return static_cast<size_t>(spec_.head_unit()); }
  // What the block that is part `i` computes with beside it, or null.
  const PartMemory* adapters(size_t i) const {
    return spec_.adapted() ? &parts_[head() + i] : nullptr;
  }

  // Schedule::make_plan: stages forward, the loss, stages backward; the embedding's backward needs
  // no weights.
  void make_plan() {
    const auto item = [&](std::vector<size_t> parts) {
      Item made;
      for (size_t p : parts)
        if (std::count(made.gathered.begin(), made.gathered.end(), parts_[p].unit) == 0)
          made.gathered.push_back(parts_[p].unit);
      plan_.push_back(std::move(made));
    };
    const auto block = [&](size_t i) {
      item(spec_.adapted() ? std::vector<size_t>{i, head() + i} : std::vector<size_t>{i});
    };
    item({0});
    for (size_t i = 1; i < head(); ++i) block(i);
    item(spec_.shape.tied ? std::vector<size_t>{head(), 0} : std::vector<size_t>{head()});
    for (size_t i = head() - 1; i > 0; --i) block(i);
    item({});
    // Schedule::add_finished: with the last part in backward order
    std::map<UnitMemory*, size_t> last;
    for (size_t i = head() + 1; i-- > 0;) {
      const bool block_adapters = spec_.adapted() && i > 0 && i < head();
      const PartMemory& trained = parts_[block_adapters ? head() + i : i];
      if (!trained.unit->frozen()) last[trained.unit] = 2 * head() - i;
    }
    for (const auto& [unit, at] : last) plan_[at].finished.push_back(unit);
  }

  void prefetch(size_t item) {
    if (item < plan_.size())
      for (UnitMemory* unit : plan_[item].gathered) unit->start_gather();
  }

  // Schedule::enter
  void enter(size_t item, bool prefetch_next) {
    prefetch(item);
    if (prefetch_next) prefetch(item + 1);
  }

  // Schedule::leave
  void leave(size_t item) {
    if (spread_.keep_gathered) return;
    const auto needs = [&](size_t later, UnitMemory* unit) {
      if (later >= plan_.size()) return false;
      const auto& list = plan_[later].gathered;
      return std::count(list.begin(), list.end(), unit) > 0;
    };
    for (UnitMemory* unit : plan_[item].gathered)
      if (!needs(item + 1, unit) && !needs(item + 2, unit)) unit->release();
  }

  // Schedule::exchange, kMaxTravelling
  void exchange(size_t item, bool last_round) {
    constexpr size_t kMaxTravelling = 2;
    const auto& finished = plan_[item].finished;
    if (finished.empty()) return;
    while (!travelling_.empty() && travelling_.size() + finished.size() > kMaxTravelling) {
      travelling_.front()->finish_exchange();
      travelling_.pop_front();
    }
    for (UnitMemory* unit : travelling_) unit->advance_exchange();
    for (UnitMemory* unit : finished) {
      unit->start_exchange(last_round);
      travelling_.push_back(unit);
    }
  }
  void finish_exchanges() {
    for (UnitMemory* unit : travelling_) unit->finish_exchange();
    travelling_.clear();
  }

  // Schedule::train_slot
  void train_slot(bool last_round) {
    const BackwardPrefetch prefetched = config_.parallelism.backward_prefetch;
    const bool before = prefetched == BackwardPrefetch::kPre;
    const bool after = prefetched == BackwardPrefetch::kPost;
    const Held input(ledger_, MemoryUse::kShared, stages_.input_bytes());
    run_forward();
    enter(head(), before);
    finish_exchanges();
    stages_.head(parts_[head()], spec_.shape.tied ? parts_[0] : parts_[head()]);
    ledger_.drop(MemoryUse::kActivations, stages_.x_bytes());  // x.reset()
    if (after) prefetch(head() + 1);
    leave(head());
    exchange(head(), last_round);
    for (size_t i = head(); i-- > 0;) {  // Schedule::run_backward
      const size_t item = 2 * head() - i;
      enter(item, before);
      if (i == 0) {
        stages_.embedding_backward(parts_[0]);
      } else {
        stages_.layer_backward(parts_[i], adapters(i), static_cast<int64_t>(i) - 1);
      }
      ledger_.drop(MemoryUse::kWork, stages_.x_bytes());  // dx = backward(dx)
      if (after) prefetch(item + 1);
      leave(item);
      exchange(item, last_round);
    }
  }

  // Schedule::run_forward
  void run_forward() {
    for (size_t i = 0; i < head(); ++i) {
      enter(i, config_.parallelism.forward_prefetch);
      if (i == 0) {
        stages_.embedding_forward();
      } else {
        stages_.layer_forward(parts_[i], adapters(i), static_cast<int64_t>(i) - 1);
      }
      leave(i);
    }
  }

  // TrainingStep::share_sums: every slot's loss and tokens, and the ranks' flags; finish_step
  void share_sums() {
    ledger_.at("end of the rounds");
    const int64_t width = 2 * config_.slots() + 6;
    const Held sums(ledger_, MemoryUse::kShared, width * kDouble * (1 + spread_.world_size));
    finish_exchanges();
    for (UnitMemory& unit : units_) unit.release();
  }

  // TrainingStep::fold_and_norm: a double for each tile
  void fold_and_norm() {
    ledger_.at("gradient norm");
    int64_t tiles = 0;
    for (const UnitMemory& unit : units_) tiles += unit.frozen() ? 0 : unit.tiles_per_rank();
    const Held norms(ledger_, MemoryUse::kShared, tiles * kDouble * (1 + spread_.world_size));
  }

  // TrainingStep::update: replicated state takes the whole sum; the next unit's travels meanwhile.
  void update() {
    ledger_.at("update");
    if (spread_.copies() == 1) return;
    for (size_t i = 0; i < units_.size(); ++i) {
      if (units_[i].frozen()) continue;  // trained ones follow each other
      const int64_t own = units_[i].held_elements() * kFloat;
      const int64_t next = i + 1 < units_.size() ? units_[i + 1].held_elements() * kFloat : 0;
      const Held whole(ledger_, MemoryUse::kUpdate, own + next);
    }
  }

  const Config& config_;
  const ModelSpec& spec_;
  Spread spread_;
  MemoryLedger& ledger_;
  PoolMemory pool_;
  StageMemory stages_;
  std::vector<WrappedUnit> wrapped_;
  std::vector<UnitMemory> units_;
  std::vector<PartMemory> parts_;  // by unit of the model
  std::vector<Item> plan_;
  std::deque<UnitMemory*> travelling_;
};

}  // namespace

MemoryLedger walk_training(const Config& config, const ModelSpec& spec, const Ranks& ranks) {
  MemoryLedger ledger;
  const int64_t local = ranks.per_node > 0 ? ranks.per_node : ranks.world_size;
  Walk walk(config, spec, Spread::create(config, ranks.world_size, local), ledger);
  for (int step = 0; step < 2; ++step) walk.step();
  return ledger;
}

}  // namespace lockstep::layout
