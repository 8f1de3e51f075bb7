#include "layout/round_plan.h"
#include "base/check.h"

#include <algorithm>
#include <map>
#include <set>

namespace lockstep::layout {
namespace {

// Exchanges under way at once: one travels, and one is folded, while the next unit computes.
constexpr size_t kMaxTravelling = 2;

bool contains(const std::vector<int>& list, int unit) {
  return std::find(list.begin(), list.end(), unit) != list.end();
}

void append(std::vector<int>& list, const std::vector<int>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

RoundItem item_of(Pass pass, size_t stage, const StageUnits& work,
                  const std::vector<UnitPlace>& places) {
  RoundItem item;
  item.pass = pass;
  item.stage = stage;
  if (pass == Pass::kBackward && !work.backward_needs_weights) return item;
  for (const int unit : work.units) {
    const int gathered = places[static_cast<size_t>(unit)].gathered;
    if (!contains(item.needed, gathered)) item.needed.push_back(gathered);
  }
  return item;
}

std::vector<RoundItem> forward_items(const std::vector<StageUnits>& stages,
                                     const std::vector<UnitPlace>& places) {
  std::vector<RoundItem> items;
  for (size_t s = 0; s < stages.size(); ++s)
    items.push_back(
        item_of(s + 1 < stages.size() ? Pass::kForward : Pass::kLoss, s, stages[s], places));
  return items;
}

// Whether the gather of what comes after `item` is started before it, or after it.
bool prefetches(const RoundItem& item, BackwardPrefetch when, const Strategy& strategy) {
  if (item.pass == Pass::kForward)
    return strategy.forward_prefetch && when == BackwardPrefetch::kPre;
  return strategy.backward_prefetch == when;
}

// A unit that one of the next two items needs stays: the last block's forward is soon followed by
// its backward.
void plan_gathers(std::vector<RoundItem>& items, const Strategy& strategy) {
  const std::vector<int> nothing;
  for (size_t i = 0; i < items.size(); ++i) {
    RoundItem& item = items[i];
    const auto needed_in = [&](size_t later) -> const std::vector<int>& {
      return i + later < items.size() ? items[i + later].needed : nothing;
    };
    item.gather = item.needed;
    if (prefetches(item, BackwardPrefetch::kPre, strategy)) append(item.gather, needed_in(1));
    if (prefetches(item, BackwardPrefetch::kPost, strategy)) item.gather_after = needed_in(1);
    if (strategy.keep_gathered) continue;
    for (const int unit : item.needed)
      if (!contains(needed_in(1), unit) && !contains(needed_in(2), unit))
        item.release.push_back(unit);
  }
}

// A unit's gradient is complete after the last item that works on it.
void plan_exchanges(RoundPlan& plan, const std::vector<StageUnits>& stages,
                    const std::vector<UnitPlace>& places) {
  std::map<int, size_t> last;  // item, by trained unit
  for (size_t i = stages.size() - 1; i < plan.items.size(); ++i)
    for (const int unit : stages[plan.items[i].stage].units)
      if (const UnitPlace& place = places[static_cast<size_t>(unit)]; !place.frozen)
        last[place.gathered] = i;
  for (const auto& [unit, item] : last) plan.items[item].start.push_back(unit);
  std::vector<int>& travelling = plan.travelling;
  for (RoundItem& item : plan.items) {
    if (item.start.empty()) continue;
    while (!travelling.empty() && travelling.size() + item.start.size() > kMaxTravelling) {
      item.finish.push_back(travelling.front());
      travelling.erase(travelling.begin());
    }
    item.advance = travelling;
    append(travelling, item.start);
  }
}

// What holds for every plan: a stage computes with units that are there, what is freed was there,
// exchanges end in the order in which they began, and each trained unit is exchanged once.
void check_plan(const RoundPlan& plan, const std::vector<UnitPlace>& places, bool trains) {
  std::set<int> there, started, trained;
  std::vector<int> under_way;
  for (const RoundItem& item : plan.items) {
    there.insert(item.gather.begin(), item.gather.end());
    for (const int unit : item.needed)
      LOCKSTEP_CHECK(there.contains(unit), "stage ", item.stage, " needs unit ", unit,
                     ", which is not gathered");
    there.insert(item.gather_after.begin(), item.gather_after.end());
    for (const int unit : item.release)
      LOCKSTEP_CHECK(there.erase(unit) == 1, "unit ", unit, " is freed and is not there");
    for (const int unit : item.finish) {
      LOCKSTEP_CHECK(!under_way.empty() && under_way.front() == unit, "the exchange of unit ", unit,
                     " ends before an older one");
      under_way.erase(under_way.begin());
    }
    LOCKSTEP_CHECK(item.start.empty() || item.advance == under_way, item.advance.size(),
                   " exchanges advance, of ", under_way.size());
    for (const int unit : item.start)
      LOCKSTEP_CHECK(started.insert(unit).second, "unit ", unit, " is exchanged twice");
    append(under_way, item.start);
  }
  LOCKSTEP_CHECK(under_way == plan.travelling, plan.travelling.size(),
                 " exchanges travel at the end, of ", under_way.size());
  for (const UnitPlace& place : places)
    if (!place.frozen) trained.insert(place.gathered);
  LOCKSTEP_CHECK(started == (trains ? trained : std::set<int>()), started.size(),
                 " units are exchanged, of ", trained.size());
}

}  // namespace

std::vector<StageUnits> stages_of(const ModelSpec& spec) {
  std::vector<StageUnits> stages{{{0}, /*backward_needs_weights=*/false}};
  for (int64_t layer = 0; layer < spec.shape.n_layers; ++layer) {
    stages.push_back({{static_cast<int>(layer) + 1}});
    if (spec.adapted()) stages.back().units.push_back(spec.adapter_unit(layer));
  }
  stages.push_back({{spec.head_unit()}});
  if (spec.shape.tied) stages.back().units.push_back(0);
  return stages;
}

RoundPlan RoundPlan::evaluation(const std::vector<StageUnits>& stages,
                                const std::vector<UnitPlace>& places, const Strategy& strategy) {
  RoundPlan plan{forward_items(stages, places), {}};
  plan_gathers(plan.items, strategy);
  check_plan(plan, places, /*trains=*/false);
  return plan;
}

RoundPlan RoundPlan::training(const std::vector<StageUnits>& stages,
                              const std::vector<UnitPlace>& places, const Strategy& strategy) {
  RoundPlan plan{forward_items(stages, places), {}};
  for (size_t s = stages.size() - 1; s-- > 0;)
    plan.items.push_back(item_of(Pass::kBackward, s, stages[s], places));
  plan_gathers(plan.items, strategy);
  plan_exchanges(plan, stages, places);
  check_plan(plan, places, /*trains=*/true);
  return plan;
}

}  // namespace lockstep::layout
