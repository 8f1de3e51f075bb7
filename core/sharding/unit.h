// One unit on one rank: its shard of the state, its gathered parameters, its gradients.
// Borrows the spec, pools and communicators. Thread: the training thread.
#pragma once

#include <span>

#include "core/sharding/gathered_params.h"
#include "core/sharding/grad_exchange.h"
#include "core/sharding/shard_state.h"

namespace lockstep::core {

struct Unit {
  Unit(const layout::UnitSpec& unit_spec, const Strategy& strategy, const Groups& groups,
       Pools& pools)
      : spec(unit_spec),
        layout(strategy.layout_of(unit_spec)),
        state(spec, layout, strategy, groups.world->rank()),
        params(spec, layout, strategy, state.compute_S(), groups, pools.exchanged),
        grads(spec, layout, strategy, groups, pools) {}

  const layout::UnitSpec& spec;
  const ShardLayout layout;
  ShardState state;
  GatheredParams params;
  GradExchange grads;
};

// The parameters of one unit of the model, counted from 0, inside the Unit that holds them: a wrap
// policy may put several together. Borrows both.
class UnitPart {
 public:
  UnitPart(Unit& unit, int first_param, const layout::UnitSpec& spec)
      : unit_(&unit), first_(first_param), spec_(&spec) {}
  Unit& unit() const { return *unit_; }
  const layout::UnitSpec& spec() const { return *spec_; }
  const at::Tensor& weight(int param) const { return unit_->params.weight(first_ + param); }
  at::Tensor grad(int param) const { return unit_->grads.grad(first_ + param); }
  at::Tensor grad_sum(int param) const { return unit_->grads.grad_sum(first_ + param); }

 private:
  Unit* unit_;
  int first_;
  const layout::UnitSpec* spec_;
};
using UnitParts = std::span<const UnitPart>;

}  // namespace lockstep::core
