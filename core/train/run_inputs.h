// What a run is given: the world around it, and all that it reads before it has a model.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>

#include "base/clock.h"
#include "base/file_system.h"
#include "config/config.h"
#include "core/comm/join.h"
#include "core/train/identity.h"
#include "data/loader/open_dataset.h"
#include "data/loader/token_dataset.h"
#include "hf/hf_weights.h"
#include "layout/model_spec.h"
#include "worker_link/progress_page.h"

namespace lockstep::core {

struct TrainerEnvironment {
  FileSystem& file_system;
  Clock& clock;
  Membership& membership;
  ProgressPage& progress;
  const std::atomic<bool>& stop_requested;  // set by a signal
  std::string nonce;                        // of this launch, or ""
  int64_t generation;                       // the launcher's number, or 0
  std::ostream& console;                    // rank 0's lines for people
  std::filesystem::path checkpoint_place;   // the checkpoint folder's absolute path

  int rank() const { return membership.communicator->rank(); }
  int world_size() const { return membership.communicator->world_size(); }
};

struct RunInputs {
  Config config;  // with the model's shape and the number of steps resolved
  data::DataSummary summary;
  layout::ModelSpec spec;
  std::unique_ptr<hf::HfWeights> weights;  // the initial ones; null: random
  std::unique_ptr<data::TokenDataset> train_data, validation_data;  // the latter may be null
  Identity identity;

  // Errors: kConfig, kNotFound, kCorrupt.
  static Result<std::unique_ptr<RunInputs>> open(FileSystem& file_system, const Config& config);
};

}  // namespace lockstep::core
