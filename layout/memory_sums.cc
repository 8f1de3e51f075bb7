#include "layout/memory_sums.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "layout/exchange_plan.h"
#include "layout/memory_units.h"

namespace lockstep::layout {
namespace {

// FoldTree
class TreeMemory {
 public:
  TreeMemory(int64_t elements, Reduction reduction, PoolMemory& pool)
      : bytes_(elements * kFloat), steps_(reduction), pool_(pool) {}

  void push(const SlotRun& run) { steps_.push(run); }
  void end_round() {
    for (const FoldStep& step : steps_.end_round()) add(step);
  }
  // The step's sum alone stays.
  void fold() { add(steps_.finish()); }
  std::vector<int64_t> take_partials() {
    steps_.clear();
    return std::exchange(open_, {});
  }
  void give(const std::vector<int64_t>& sums) {
    for (const int64_t bytes : sums) pool_.give(MemoryUse::kFold, bytes);
  }

 private:
  void add(const FoldStep& step) {
    if (step.opened() > 0) open_.push_back(pool_.take(MemoryUse::kFold, bytes_));
    for (int gone = step.opened(); gone < 0; ++gone) {
      pool_.give(MemoryUse::kFold, open_.back());
      open_.pop_back();
    }
  }
  int64_t bytes_;
  FoldSteps steps_;
  PoolMemory& pool_;
  std::vector<int64_t> open_;
};

// GradExchange: where it adds.
class UnitSums {
 public:
  UnitSums(const ShardLayout& layout, Reduction reduction, PoolMemory& pool)
      : of_rank_(layout.padded_elements(), Reduction::kTree, pool),
        of_group_(layout.joint_elements(), Reduction::kTree, pool),
        of_all_(layout.owned_elements(), reduction, pool) {}

  void start(std::shared_ptr<const ExchangePlan> plan) {
    if (plan->sums_slots && plan->slot) of_rank_.push({*plan->slot, 1});
    of_rank_.end_round();
    if (!plan->travels) return;
    plan_ = std::move(plan);
    if (plan_->sums_slots) from_rank_ = of_rank_.take_partials();
  }
  void advance() {
    if (plan_ == nullptr || from_group_ || !plan_->relays()) return;
    if (plan_->sums_in_group)
      for (const SlotRun& run : plan_->in_group.runs) of_group_.push(run);
    of_group_.end_round();
    from_group_ = plan_->crosses ? of_group_.take_partials() : std::vector<int64_t>();
  }
  void finish() {
    if (plan_ == nullptr) return;
    advance();
    if (plan_->crosses) {
      for (const SlotRun& run : plan_->native ? std::vector{plan_->round} : plan_->last_leg().runs)
        of_all_.push(run);
      of_all_.end_round();
    }
    if (from_group_) of_group_.give(*std::exchange(from_group_, std::nullopt));
    of_rank_.give(std::exchange(from_rank_, {}));
    plan_.reset();
  }
  void fold() { of_all_.fold(); }
  void give_folded() { of_all_.give(of_all_.take_partials()); }

 private:
  std::shared_ptr<const ExchangePlan> plan_;
  TreeMemory of_rank_, of_group_, of_all_;
  std::vector<int64_t> from_rank_;
  std::optional<std::vector<int64_t>> from_group_;  // once it has advanced
};

// Sums that are open at most while the round is added that `steps` were told of, of `open` before.
size_t most_in_round(FoldSteps& steps, size_t open) {
  size_t most = open;
  for (const FoldStep& step : steps.end_round()) {
    open += static_cast<size_t>(step.opened());
    most = std::max(most, open);
  }
  return most;
}

// Sums of `units` units together, where each adds the slots of a group, which lie one behind the
// other.
struct OpenSums {
  // At their most: those that a unit keeps between two rounds, and in one unit those of the round
  // that is being added.
  int64_t most = 0;
  int64_t shipped = 0;  // of a unit, after the last round
  auto operator<=>(const OpenSums&) const = default;
};
OpenSums open_sums(const SlotMap& map, int group, int64_t units) {
  FoldSteps steps(Reduction::kTree);
  size_t before = 0, most = 0;
  const auto more = static_cast<size_t>(units - 1);
  for (int64_t round = 0; round < map.rounds(); ++round) {
    const SlotRun run = map.run_in_round(round, group * map.group, map.group);
    for (int64_t slot = run.first; slot < run.end(); ++slot) steps.push({slot, 1});
    const size_t in_round = most_in_round(steps, before);
    const bool last = round + 1 == map.rounds();
    most = std::max(most, std::max(before, last ? 0 : steps.open()) * more + in_round);
    before = steps.open();
  }
  return {static_cast<int64_t>(most), static_cast<int64_t>(before)};
}

// Sums that the members of group g have open at most when they add what each of them has added of
// its slots: under the block map.
size_t open_in_group(const Strategy& strategy, int g) {
  const int size = strategy.sizes.group;
  FoldSteps steps(Reduction::kTree);
  for (int rank = g * size; rank < (g + 1) * size; ++rank)
    for (const SlotRun& run : subtrees_of(strategy.map.run_of_groups(rank))) steps.push(run);
  return most_in_round(steps, 0);
}

// The rank with the most sums of its own, in a group that has the most.
int heaviest_in_a_group(const Strategy& strategy, int64_t units) {
  const int size = strategy.sizes.group;
  int heaviest = 0;
  std::pair<size_t, OpenSums> most;
  for (int g = 0; g < strategy.map.world_size / size; ++g) {
    const size_t in_group = open_in_group(strategy, g);
    for (int rank = g * size; rank < (g + 1) * size; ++rank) {
      const std::pair open(in_group, open_sums(strategy.map, rank, units));
      if (open > most) most = open, heaviest = rank;
    }
  }
  return heaviest;
}

// The first rank of a group that needs the most sums at once, as counted for `units` units alike.
int heaviest_rank(const Strategy& strategy, int64_t units) {
  const SlotMap& map = strategy.map;
  int heaviest = 0;
  OpenSums most;
  for (int group = 0; group < map.groups(); ++group) {
    const OpenSums open = open_sums(map, group, units);
    if (open > most) most = open, heaviest = group * map.group;
  }
  return heaviest;
}

}  // namespace

int64_t most_pooled_sums_bytes(const Strategy& strategy, const std::vector<ShardLayout>& units,
                               const RoundPlan& round) {
  std::set<int> ranks{strategy.map.computing_rank(), heaviest_rank(strategy, std::ssize(units))};
  if (strategy.map.block() && strategy.sizes.two_legs(strategy.map.world_size))
    ranks.insert(heaviest_in_a_group(strategy, std::ssize(units)));
  int64_t most = 0;
  for (const int rank : ranks)
    most = std::max(most, pooled_sums_bytes(strategy, rank, units, round));
  return most;
}

int64_t pooled_sums_bytes(const Strategy& strategy, int rank, const std::vector<ShardLayout>& units,
                          const RoundPlan& round) {
  constexpr int kSteps = 2;  // the second one finds the pool as it stays
  MemoryLedger ledger;
  PoolMemory pool(ledger);
  std::vector<UnitSums> sums;
  for (const ShardLayout& layout : units) sums.emplace_back(layout, strategy.reduction, pool);
  const auto each = [&](const std::vector<int>& list, auto&& does) {
    for (const int unit : list) does(sums[static_cast<size_t>(unit)]);
  };
  const auto finish = [](UnitSums& one) { one.finish(); };
  for (int step = 0; step < kSteps; ++step) {
    for (int64_t r = 0; r < strategy.map.rounds(); ++r) {
      const auto plan =
          std::make_shared<const ExchangePlan>(ExchangePlan::create(strategy, r, rank));
      for (const RoundItem& item : round.items) {
        if (item.pass == Pass::kLoss) each(round.travelling, finish);
        each(item.finish, finish);
        each(item.advance, [](UnitSums& one) { one.advance(); });
        each(item.start, [&](UnitSums& one) { one.start(plan); });
      }
    }
    each(round.travelling, finish);
    for (UnitSums& one : sums) one.fold();
    for (UnitSums& one : sums) one.give_folded();
  }
  return ledger.live(MemoryUse::kPoolIdle);
}

}  // namespace lockstep::layout
