// What `lockstep plan` found, as tables for people and as JSON.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan/plan_device.h"
#include "cli/plan/plan_probe.h"
#include "config/config.h"
#include "layout/memory_plan.h"

namespace lockstep::cli {

struct PlanReport {
  Config config;
  layout::ModelSpec spec;
  layout::Ranks ranks;
  layout::MemoryPlan plan;
  std::vector<layout::Occupancy> occupancy;

  int64_t device_bytes = 0;  // 0: not given, and what follows is empty
  std::optional<layout::LargestBatch> largest_batch;
  layout::ScalingStrategy scaling = layout::ScalingStrategy::kAll;
  struct Candidate {
    ShardingStrategy strategy;  // of the ranks
    std::optional<layout::LargestModel> model;
  };
  std::vector<Candidate> largest_models;

  std::optional<Probe> probe;

  std::optional<DevicePlan> device;  // with --device
};

void print_plan(std::ostream& out, const PlanReport& report);
std::string plan_json(const PlanReport& report);

}  // namespace lockstep::cli
