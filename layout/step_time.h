// How long a training step takes on a device, without running it: `lockstep plan --device`. Pure.
//
// A walk of a rank that computes, rank 0 where it does, through a step: the items of each
// RoundPlan, the exchanges of each ExchangePlan, the kernels of StageWork, by the clocks of
// step_clocks.h.
//
// What it leaves out: other ranks that are late, data, checkpoints, logs, memory that runs out.
#pragma once

#include <cstdint>

#include "layout/memory_walk.h"
#include "layout/model_spec.h"
#include "layout/step_clocks.h"

namespace lockstep::layout {

struct StepTime {
  StepPhases phases;
  double total_s = 0;  // the phases' sum
  double tokens_per_s = 0, tokens_per_s_rank = 0;
  double mfu = 0;     // by ModelSpec::flops_per_token, against bf16_peak_tflops of all ranks
  Transfer received;  // by rank 0, all gathers and exchanges together

  const PhaseTime& at(StepPhase phase) const { return phases[static_cast<size_t>(phase)]; }
};

// Requires a validated config; `spec` is its model. `ranks.per_node`, where it is 0, is the
// device's.
StepTime plan_step_time(const Config& config, const ModelSpec& spec, const Ranks& ranks,
                        const DeviceRates& rates);

// Who takes part in a collective.
// `members` ranks, each `stride` after the one before, on nodes of `per_node` ranks.
struct Members {
  int64_t count = 1, stride = 1, per_node = 1;
  int64_t near() const;  // of them on one node
  int64_t nodes() const { return (count + near() - 1) / near(); }
};
// Each ends with `bytes`: a ring through all ranks, whose bytes come into a node once, through the
// network of all its members.
Transfer all_gather(double bytes, const Members& members, const DeviceRates& rates);
// Rank 0 receives `part_bytes` from each of `senders` members, itself perhaps among them: straight
// from each.
Transfer all_to_all(double part_bytes, int64_t senders, const Members& members,
                    const DeviceRates& rates);

}  // namespace lockstep::layout
