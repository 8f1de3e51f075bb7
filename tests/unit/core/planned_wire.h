// What the plans say of a step's tensors on the wire, to the byte.
#pragma once

#include <ostream>
#include <set>

#include "layout/exchange_plan.h"
#include "layout/muon_plan.h"
#include "layout/round_plan.h"
#include "layout/strategy.h"
#include "layout/wrap.h"

namespace lockstep::core {

struct Wire {
  int64_t gather = 0, exchange = 0;
  bool operator==(const Wire&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const Wire& wire) {
  return out << wire.gather << " gathered, " << wire.exchange << " exchanged";
}

// Bytes that member `me` receives in a leg.
inline int64_t received(const layout::Leg& leg, size_t me, int64_t part_elements) {
  if (leg.members() == 0) return 0;
  const size_t pieces = leg.runs.size() - leg.of(me).size();
  return static_cast<int64_t>(pieces) * part_elements * leg.element_bytes();
}

// Bytes of Muon's directions and updates, bf16, that come to `rank` from others.
inline int64_t planned_muon_wire(const Config& config, const layout::ModelSpec& spec,
                                 const layout::Strategy& strategy, int rank) {
  const auto wrapped =
      wrap(spec, config.parallelism.wrap_policy, config.parallelism.min_num_params);
  std::vector<layout::MuonUnit> units;
  for (const auto& run : wrapped) units.push_back({&run.spec, strategy.layout_of(run.spec)});
  const size_t me = static_cast<size_t>(rank);
  int64_t elements = 0;
  for (const auto& wave : layout::muon_waves(units, strategy.muon, rank)) {
    if (wave.matrices.empty()) continue;
    elements += wave.at_home.elements() - wave.at_home.counts[me];
    elements += wave.own.elements() - wave.own.counts[me];
    for (size_t u = wave.first_unit; u < wave.end_unit; ++u)
      if (wave.has_matrices_of(u))
        elements += (strategy.copies() - 1) * units[u].layout.owned_elements();
  }
  return 2 * elements;
}

// What the plans say of a step of `rank`.
inline Wire planned_wire(const Config& config, const layout::ModelSpec& spec,
                         const layout::Strategy& strategy, int rank) {
  const int64_t copies = strategy.copies();
  const size_t place = static_cast<size_t>(rank % strategy.sizes.group),
               group = static_cast<size_t>(rank / strategy.sizes.group);
  std::vector<layout::UnitPlace> places;
  std::vector<layout::ShardLayout> units;
  for (const auto& run :
       wrap(spec, config.parallelism.wrap_policy, config.parallelism.min_num_params)) {
    for (size_t i = 0; i < run.first_params.size(); ++i)
      places.push_back({static_cast<int>(units.size()), run.spec.frozen});
    units.push_back(strategy.layout_of(run.spec));
  }
  const auto round = layout::RoundPlan::training(layout::stages_of(spec), places, strategy);
  Wire wire;
  std::set<int> there, kept;  // whole; a part each in the ranks of a node
  const auto gather = [&](const std::vector<int>& list) {
    for (const int u : list) {
      if (!there.insert(u).second) continue;
      const layout::ShardLayout& unit = units[static_cast<size_t>(u)];
      const bool in_node = strategy.keep_joint_part && !kept.insert(u).second;
      wire.gather += (in_node ? (strategy.sizes.group - 1) * unit.joint_elements()
                              : (strategy.sizes.shard - 1) * unit.held_elements()) *
                     strategy.compute_bytes();
    }
  };
  for (int64_t r = 0; r < strategy.map.rounds(); ++r) {
    const auto plan = layout::ExchangePlan::create(strategy, r, rank);
    for (const layout::RoundItem& item : round.items) {
      gather(item.gather);
      gather(item.gather_after);
      for (const int u : item.release) there.erase(u);
      for (const int u : item.start) {
        const layout::ShardLayout& unit = units[static_cast<size_t>(u)];
        wire.exchange += received(plan.in_group, place, unit.joint_elements()) +
                         received(plan.among_groups, group, unit.owned_elements());
      }
    }
  }
  for (const layout::ShardLayout& unit : units)  // the sum that the other copies update with, fp32
    wire.exchange += (copies - 1) * unit.owned_elements() * 4;
  wire.exchange += planned_muon_wire(config, spec, strategy, rank);
  return wire;
}

}  // namespace lockstep::core
