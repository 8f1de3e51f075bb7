// The rows of a sweep with their configs, and the plan file that pins them: OUT/sweep.json. A
// second call with the same OUT has to have the same plan, so that a table holds rows of one sweep.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "cli/sweep/sweep_words.h"

namespace lockstep::cli {

struct PlannedRow {
  SweepRow row;
  std::string config;   // TOML; "": it is wrong
  std::string refusal;  // why
};

struct SweepPlan {
  SweepWords words;
  std::string config_path;    // CONFIG.toml as it was given
  std::filesystem::path out;  // of words, else results/sweep/<CONFIG's name>
  std::vector<PlannedRow> rows;
};

// Reads CONFIG.toml. A combination of values that a config cannot have is a row that is refused.
// Errors: kConfig: what is wrong in all rows, or cannot be read at all; kNotFound.
Result<SweepPlan> plan_sweep(SweepWords words);

std::string plan_json(const SweepPlan& plan);
// Errors: kConfig, naming what is another one: `pinned`, read from `path`, is not of this plan, or
// is no plan file.
Result<void> check_plan(const SweepPlan& plan, const std::string& pinned,
                        const std::filesystem::path& path);

// Makes OUT with its plan file, or holds this plan against the one that is there; then the folders
// and configs of the rows. Errors: kConfig (check_plan), kIo, kNoSpace.
Result<void> pin_plan(FileSystem& file_system, const SweepPlan& plan);

}  // namespace lockstep::cli
