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

  // Collective. Errors: kConfig, kNotFound, kCorrupt, communication.
  static Result<std::unique_ptr<RunInputs>> open(FileSystem& file_system, const Config& config,
                                                 Communicator& all);
};

// hf::initial_weights and their hash, for all ranks: rank 0 alone looks at the files, and tells the
// others where the tensors lie. Collective, whatever a rank's config says. Errors: rank 0's, on
// every rank; communication.
Result<std::unique_ptr<hf::HfWeights>> shared_initial_weights(FileSystem& file_system,
                                                              const Config& config,
                                                              const layout::ModelSpec& spec,
                                                              Communicator& all);

}  // namespace lockstep::core
