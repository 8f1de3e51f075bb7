// What `lockstep plan` found, as tables for people and as JSON.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "cli/plan_probe.h"
#include "model_spec/memory_plan.h"

namespace lockstep::cli {

struct PlanReport {
  Config config;
  model_spec::ModelSpec spec;
  model_spec::Ranks ranks;
  model_spec::MemoryPlan plan;
  std::vector<model_spec::Occupancy> occupancy;

  int64_t device_bytes = 0;  // 0: not given, and what follows is empty
  std::optional<model_spec::LargestBatch> largest_batch;
  model_spec::ScalingStrategy scaling = model_spec::ScalingStrategy::kAll;
  struct Candidate {
    std::string strategy;  // of the ranks
    std::optional<model_spec::LargestModel> model;
  };
  std::vector<Candidate> largest_models;

  std::optional<Probe> probe;
};

void print_plan(std::ostream& out, const PlanReport& report);
std::string plan_json(const PlanReport& report);

}  // namespace lockstep::cli
