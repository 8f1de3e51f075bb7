// How much memory a training run takes, without running it: `lockstep plan`. Pure arithmetic.
//
// The sum is that of the tensor allocator's live bytes (core/train/memory_stats.h), on a rank that
// holds the most; a walk through two steps finds where they are highest. Memory that is not
// a tensor's (checkpoint staging, snapshots, batches) stands beside it. The libraries' own
// scratch, code and stacks are in neither.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/memory_walk.h"
#include "layout/model_spec.h"

namespace lockstep::layout {

// The row of MemoryPlan::host that stands for checkpoint.memory_interval.
inline constexpr const char* kSnapshotRow = "snapshots in memory";
// And the one of what a save writes; not there where nothing is saved.
inline constexpr const char* kStagedRow = "checkpoint: staged copy of the state";

struct MemoryRow {
  std::string what;
  int64_t bytes = 0;
};

struct MemoryPlan {
  int64_t peak_bytes = 0;
  int64_t offloaded_bytes = 0;     // of them, in host memory where the device is no CPU
  std::string peak_at;             // what the step does then: "backward of block 3"
  std::vector<MemoryRow> tensors;  // live at that moment; their sum is peak_bytes
  std::vector<MemoryRow> host;     // beside the tensors, in host memory
  std::vector<MemoryRow> gpu;      // beside them, on the device where it is a GPU: estimates

  int64_t device_bytes() const { return peak_bytes - offloaded_bytes; }
};
// Requires a validated config; `spec` is its model, or one to be tried in its place.
MemoryPlan plan_memory(const Config& config, const ModelSpec& spec, const Ranks& ranks);

// How V slots use W ranks: rounds of W, the last one perhaps not full.
struct Occupancy {
  int64_t world_size = 1, rounds = 1;
  double busy = 1;  // share of the ranks' time that computes a slot
};
Occupancy occupancy(int64_t slots, int64_t world_size);
// Tokens a second of `left` ranks over those of `all`, where every round takes as long.
double speed_left(int64_t slots, int64_t all, int64_t left);

// Of the ranks' time: what may be idle without a word.
inline constexpr double kMuchIdle = 0.2;
// A line that says which ranks compute nothing, and the flags of a new run in which all do. "": as
// many slots as ranks or more, and no more than kMuchIdle of the ranks' time idle.
// Requires: `config` is valid, ranks >= 1.
std::string idle_ranks_warning(const Config& config, int64_t ranks);

// The largest training.local_batch_size whose device_bytes fit. Empty: not even 1 does.
struct LargestBatch {
  int64_t batch_size = 0;
  int64_t device_bytes = 0;
};
std::optional<LargestBatch> largest_batch(const Config& config, const ModelSpec& spec,
                                          const Ranks& ranks, int64_t room_bytes);

// kAll: layers, heads, width and feed-forward grow alike, heads stay as wide as they are.
// kLayers: more of the same layers.
enum class ScalingStrategy { kAll, kLayers };
DecoderShape scaled(const DecoderShape& shape, ScalingStrategy strategy, double factor);

// The largest scaling of `shape` whose device_bytes fit. Empty: not even the smallest does.
struct LargestModel {
  double factor = 0;
  DecoderShape shape;
  int64_t parameters = 0, device_bytes = 0;
};
std::optional<LargestModel> largest_model(const Config& config, const DecoderShape& shape,
                                          ScalingStrategy strategy, const Ranks& ranks,
                                          int64_t room_bytes);

}  // namespace lockstep::layout
