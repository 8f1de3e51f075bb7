// Choosing a checkpoint and loading it, the same one on every rank: rank 0 proposes snapshots in
// memory that are newer than the disk, then the newest committed checkpoint; every rank loads its
// part, and one rank's failure makes all fall back to the next older, loudly.
#pragma once

#include <optional>
#include <string>

#include "base/file_system.h"
#include "checkpoint/record/catalog.h"
#include "config/config.h"
#include "core/comm/communicator.h"
#include "core/comm/shared_store.h"
#include "core/optim/validations.h"
#include "core/train/memory_place.h"
#include "core/train/training_step.h"
#include "data/loader/data_history.h"

namespace lockstep::core {

struct TrainerState {              // the JSON object of the manifest's trainer_state
  int64_t step = 0;                // last finished optimizer step
  int64_t slots = 0;               // V
  int64_t tokens = 0;              // valid tokens trained on
  int64_t skipped_steps = 0;       // steps without an update
  std::vector<int64_t> skip_list;  // training.nan_policy rollback: steps left out, ascending
  int64_t audited_step = -1;       // the last one whose audit found nothing; -1: none was audited
  bool audit_found = false;        // one found something, and training went on: audited_step stays
  Validations validations;
  std::vector<std::string> identity;
  std::vector<data::DataStretch> stretches;  // of its data; the last one is under way
  std::string to_json() const;
  static Result<TrainerState> from_json(const std::string& json);  // Errors: kCorrupt
};

struct Resumed {
  TrainerState state;
  std::string from;             // for people: a directory, or memory; "" when nothing was found
  std::string snapshot_folder;  // the name of the generation's folder in memory, or ""
  int64_t disk_step = -1;       // newest one committed on disk
  int64_t fallbacks = 0;        // newer checkpoints that could not be used
  int64_t next_generation = 1;  // larger than any generation in the folder
  std::string nonce;            // of this generation, the same on every rank
  double seconds = 0;
  int64_t read_bytes = 0;
};

struct ResumeOptions {
  const MemoryPlace* memory = nullptr;  // where snapshots lie; null: only the disk counts
  std::string nonce_hint;               // this launch's nonce, or ""
  int64_t generation_hint = 0;
  int64_t attempt = 0;  // one of its own for each time that a process asks
};

// Collective. Fills the units' state when a checkpoint was found (state.step > 0). Errors: kConfig
// (the checkpoint is of another model, with both sides), communication.
Result<Resumed> resume_newest(FileSystem& file_system, const Config& config,
                              const ResumeOptions& options, SharedStore& store, Communicator& comm,
                              TrainingStep& step);

}  // namespace lockstep::core
