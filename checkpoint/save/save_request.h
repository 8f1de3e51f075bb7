// What the engine (engine.h) is made with, is asked for, and answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/codec/chunk_codec.h"
#include "checkpoint/record/manifest_parts.h"
#include "checkpoint/save/retention.h"

namespace lockstep::checkpoint {

struct EngineOptions {
  std::filesystem::path folder;  // …/checkpoints; made when missing
  int rank = 0;
  int world_size = 1;
  int64_t generation = 0;
  std::string nonce;  // the same on every rank of this generation; 6 hex digits
  Codec codec = Codec::kZstd;
  int threads = 1;
  int nice = 0;  // of the compressors, 0 to 19
  RetentionPolicy retention;
  std::chrono::milliseconds vote_deadline{60000};
  int ranks_per_file = 1;         // at most so many of one node share a file
  std::vector<int> node_of_rank;  // of all ranks, where they share files; empty: one node
  int64_t most_ranks_in_one_manifest = kMostRanksInOneManifest;  // of more it is in parts
};

struct SaveRequest {
  int64_t step = 0;
  int64_t updates = 0;               // of the optimizer so far: steps less those that were skipped
  bool ephemeral = false;            // goes with the next commit
  std::string trainer_state = "{}";  // a JSON object text
  int64_t audited_step = -1;         // up to which the run is audited; -1: not at all
  std::optional<double> validation_loss = {};  // of this step's state, where it was validated
};

struct SaveReport {  // of one finished save, this rank's view
  int64_t step = 0;
  bool committed = false;
  std::string error;       // why not
  Code code = Code::kBug;  // of the error; this rank's own where it has one
  // Of the file that this rank writes; of one that hands its chunks to a neighbour, of those.
  int64_t raw_bytes = 0, stored_bytes = 0;
  double stage_s = 0, write_s = 0, sync_s = 0, vote_s = 0;
  std::filesystem::path directory;
};

}  // namespace lockstep::checkpoint
