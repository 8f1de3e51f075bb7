#include "layout/memory_walk.h"

#include <algorithm>

#include "layout/memory_stages.h"
#include "layout/memory_sums.h"
#include "layout/memory_units.h"
#include "layout/muon_plan.h"
#include "layout/norm_tree.h"
#include "layout/round_plan.h"
#include "layout/wrap.h"

namespace lockstep::layout {
namespace {

constexpr int64_t kDouble = 8, kBf16 = 2;

// What `rank` exchanges in a round, where a group receives the most pieces.
ExchangePlan largest_exchange(const Strategy& strategy, int64_t round, int rank) {
  const SlotMap& map = strategy.map;
  if (!map.block()) return ExchangePlan::create(strategy, round, rank);
  int of_most = rank;
  const auto pieces = [&](int r) { return subtrees_of(map.run_of_groups(r)).size(); };
  for (int r = 0; r < map.world_size; ++r)
    if (pieces(r) > pieces(of_most)) of_most = r;
  ExchangePlan plan = ExchangePlan::create(strategy, round, of_most);
  plan.slot = map.slot(round, rank);
  return plan;
}

// Those of the rounds that are walked: the first and the last one. `alone`: as `rank` has them.
std::vector<ExchangePlan> exchanges_of(const Strategy& strategy, int rank, bool alone) {
  std::vector<ExchangePlan> exchanges;
  const int64_t last = strategy.map.rounds() - 1;
  for (int64_t round = 0; round <= last; round += std::max<int64_t>(last, 1))
    exchanges.push_back(alone ? ExchangePlan::create(strategy, round, rank)
                              : largest_exchange(strategy, round, rank));
  if (!alone && !exchanges.back().slot)
    exchanges.back().slot = strategy.map.slots - 1;  // another's
  return exchanges;
}

// A buffer of the pool, for a scope.
class Pooled {
 public:
  // `bytes`: 0 is none.
  Pooled(PoolMemory& pool, int64_t bytes)
      : pool_(pool), bytes_(bytes > 0 ? pool.take(MemoryUse::kUpdate, bytes) : 0) {}
  ~Pooled() {
    if (bytes_ > 0) pool_.give(MemoryUse::kUpdate, bytes_);
  }
  Pooled(const Pooled&) = delete;
  Pooled& operator=(const Pooled&) = delete;

 private:
  PoolMemory& pool_;
  int64_t bytes_;
};

class Walk {
 public:
  Walk(const Config& config, const ModelSpec& spec, const Strategy& strategy, const Ranks& ranks,
       MemoryLedger& ledger)
      : config_(config),
        spec_(spec),
        strategy_(strategy),
        ledger_(ledger),
        pool_(ledger),
        stages_(config, spec, strategy.compute_bytes(), ranks.sizes, ledger),
        stage_units_(stages_of(spec)),
        wrapped_(wrap(spec, config.parallelism.wrap_policy, config.parallelism.min_num_params)),
        rank_(strategy.map.computing_rank()),
        exchanges_(exchanges_of(strategy, rank_, ranks.first_alone)) {
    std::vector<UnitPlace> places;
    units_.reserve(wrapped_.size());
    for (const WrappedUnit& run : wrapped_) {
      units_.emplace_back(run.spec, strategy_, rank_, ledger, pool_);
      for (size_t i = 0; i < run.first_params.size(); ++i) {
        parts_.push_back({&units_.back(), run.first_params[i],
                          &spec.units[static_cast<size_t>(run.first_unit) + i]});
        places.push_back({static_cast<int>(units_.size()) - 1, run.spec.frozen});
      }
    }
    std::vector<ShardLayout> layouts, trained;
    for (const UnitMemory& one : units_) {
      layouts.push_back(one.layout());
      if (one.frozen()) continue;
      trained.push_back(one.layout());
      updated_.push_back({&one.spec(), one.layout()});
    }
    norm_tree_ = NormTree(std::move(trained));
    waves_ = muon_waves(updated_, strategy_.muon, rank_);
    round_ = RoundPlan::training(stage_units_, places, strategy_);
    ledger_.hold(MemoryUse::kFold, ranks.first_alone
                                       ? pooled_sums_bytes(strategy_, rank_, layouts, round_)
                                       : most_pooled_sums_bytes(strategy_, layouts, round_));
  }

  // TrainingStep::run
  void step() {
    for (const ExchangePlan& exchange : exchanges_) train_slot(exchange);
    share_sums();
    fold_and_norm();
    update();
  }

 private:
  UnitMemory& unit(int gathered) { return units_[static_cast<size_t>(gathered)]; }

  // Schedule::train_slot
  void train_slot(const ExchangePlan& exchange) {
    const Held input(ledger_, MemoryUse::kShared, exchange.slot ? stages_.input_bytes() : 0);
    for (const RoundItem& item : round_.items) {
      for (const int u : item.gather) unit(u).start_gather();
      if (item.pass == Pass::kLoss) finish_exchanges();
      if (exchange.slot) compute(item);
      for (const int u : item.gather_after) unit(u).start_gather();
      for (const int u : item.release) unit(u).release();
      for (const int u : item.finish) unit(u).finish_exchange();
      for (const int u : item.advance) unit(u).advance_exchange();
      for (const int u : item.start) unit(u).start_exchange(exchange);
    }
  }

  void finish_exchanges() {
    for (const int u : round_.travelling) unit(u).finish_exchange();
  }

  // Schedule::compute: x or dx takes the place of the one before.
  void compute(const RoundItem& item) {
    const std::vector<int>& units = stage_units_[item.stage].units;
    const PartMemory& part = parts_[static_cast<size_t>(units[0])];
    const PartMemory* more = units.size() > 1 ? &parts_[static_cast<size_t>(units[1])] : nullptr;
    const int64_t layer = static_cast<int64_t>(item.stage) - 1;
    switch (item.pass) {
      case Pass::kForward:
        return item.stage == 0 ? stages_.embedding_forward()
                               : stages_.layer_forward(part, more, layer);
      case Pass::kLoss:
        stages_.head(part, more != nullptr ? *more : part);
        return ledger_.drop(MemoryUse::kActivations, stages_.x_bytes());
      case Pass::kBackward:
        item.stage == 0 ? stages_.embedding_backward(part)
                        : stages_.layer_backward(part, more, layer);
        return ledger_.drop(MemoryUse::kWork, stages_.x_bytes());
    }
  }

  // TrainingStep::share_sums, what rank 0 hears; finish_step
  void share_sums() {
    ledger_.at("end of the rounds");
    const StepSums places{strategy_.map};
    const Held sums(ledger_, MemoryUse::kShared,
                    (places.words(1) * (1 + told_at_once(strategy_.sizes)) +
                     places.words(strategy_.map.world_size)) *
                        kDouble);
    finish_exchanges();
    for (UnitMemory& one : units_) one.release();
  }

  // TrainingStep::fold_and_norm: a double for each tile, and the nodes that are told
  void fold_and_norm() {
    ledger_.at("gradient norm");
    const int64_t numbers =
        norm_tree_.tiles() + norm_tree_.width() + norm_tree_.heard(told_at_once(strategy_.sizes));
    const Held norms(ledger_, MemoryUse::kShared, numbers * kDouble);
  }

  // Optimizer::update_wave
  void update() {
    ledger_.at("update");
    for (const MuonWave& wave : waves_) {
      const Pooled sent(pool_, wave.matrices.empty() ? 0 : room(wave.own));
      for (size_t i = wave.first_unit; i < wave.end_unit; ++i) whole_sums(i);
      if (!wave.matrices.empty()) orthogonalize(wave);
      for (size_t i = wave.first_unit; i < wave.end_unit; ++i) gather_update(wave, i);
    }
  }

  // Replicated state takes the whole sum; the next unit's travels meanwhile.
  void whole_sums(size_t i) {
    const Held own(ledger_, MemoryUse::kUpdate, whole_sum(i)),
        next(ledger_, MemoryUse::kUpdate, whole_sum(i + 1));
  }
  int64_t whole_sum(size_t i) const {
    if (strategy_.copies() == 1 || i >= updated_.size()) return 0;
    return updated_[i].layout.held_elements() * kFloat;
  }

  static int64_t room(const MuonPieces& pieces) {
    return std::max<int64_t>(pieces.elements(), 1) * kBf16;
  }

  // Muon::exchange: what is received, a matrix, and what core's orthogonalize works in.
  void orthogonalize(const MuonWave& wave) {
    const Pooled home(pool_, room(wave.at_home));
    for (const MuonMatrix& m : wave.matrices) {
      if (m.home != rank_) continue;
      const int64_t square = m.short_side() * m.short_side() * kBf16;
      const Pooled x(pool_, m.elements() * kBf16), other(pool_, m.elements() * kBf16),
          gram(pool_, square), its_square(pool_, square);
    }
  }

  // Muon::whole_update
  void gather_update(const MuonWave& wave, size_t i) {
    const ShardLayout& layout = updated_[i].layout;
    if (strategy_.copies() == 1 || !wave.has_matrices_of(i)) return;
    const Pooled part(pool_, layout.owned_elements() * kBf16),
        whole(pool_, layout.held_elements() * kBf16);
  }

  const Config& config_;
  const ModelSpec& spec_;
  Strategy strategy_;
  MemoryLedger& ledger_;
  PoolMemory pool_;
  StageMemory stages_;
  std::vector<StageUnits> stage_units_;
  std::vector<WrappedUnit> wrapped_;
  std::vector<UnitMemory> units_;
  std::vector<PartMemory> parts_;  // by unit of the model
  NormTree norm_tree_;
  RoundPlan round_;
  int rank_;                             // that is walked
  std::vector<MuonUnit> updated_;        // the units that are trained
  std::vector<MuonWave> waves_;          // of them
  std::vector<ExchangePlan> exchanges_;  // of the rounds that are walked
};

}  // namespace

Strategy Ranks::strategy(const Config& config) const {
  return Strategy::create(config, static_cast<int>(world_size), static_cast<int>(per_node));
}

std::string Ranks::idle_reshard(const Config& config) const {
  return reshard_is_idle(config, static_cast<int>(world_size), static_cast<int>(per_node));
}

MemoryLedger walk_training(const Config& config, const ModelSpec& spec, const Ranks& ranks) {
  MemoryLedger ledger;
  Walk walk(config, spec, ranks.strategy(config), ranks, ledger);
  for (int step = 0; step < 2; ++step) walk.step();
  return ledger;
}

}  // namespace lockstep::layout
