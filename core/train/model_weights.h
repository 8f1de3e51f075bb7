// Fills a model that only computes, as `lockstep generate` and `lockstep eval` do.
#pragma once

#include <string>

#include "base/file_system.h"
#include "config/config.h"
#include "core/train/training_step.h"

namespace lockstep::core {

struct WeightSource {
  bool of_folder = false;  // those of model.hf_assets_path, and no checkpoint
  std::string checkpoint;  // this one; "": the newest valid one in config's checkpoint folder
};
// Errors: kNotFound (no checkpoint), kConfig, kCorrupt, kIo.
Result<void> fill_weights(FileSystem& file_system, const Config& config,
                          const layout::ModelSpec& spec, const WeightSource& source,
                          TrainingStep& model);

}  // namespace lockstep::core
