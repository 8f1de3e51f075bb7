// What two checkpoints have in common, whatever number of ranks, codec or cut wrote them.
#pragma once

#include "checkpoint/tools/progress.h"
#include "checkpoint/tools/window.h"

namespace lockstep::checkpoint {

struct FieldDifference {
  std::string name, a, b;  // "(absent)" where one side does not have it
};
struct ShapeDifference {
  std::string key;  // kind/name
  std::vector<int64_t> a, b;
};
struct DtypeDifference {
  std::string key;  // kind/name
  Dtype a, b;
};
struct TensorDifference {
  std::string key;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  int64_t differing = 0;  // elements whose bits differ
  double max_abs = 0;     // largest |a - b|; infinite when one of a pair is NaN or infinite
};

struct CheckpointDiff {
  std::vector<FieldDifference> state;       // step and trainer state; the identity line by line
  std::vector<FieldDifference> layout;      // world size, codec, …: not part of what was trained
  std::vector<std::string> only_a, only_b;  // kind/name
  std::vector<ShapeDifference> shapes;
  std::vector<DtypeDifference> dtypes;
  std::vector<TensorDifference> tensors;  // largest max_abs first, then most elements
  int64_t equal_tensors = 0;              // counted by kind
  // The same state, bit for bit; the layout may differ.
  bool equal() const {
    return state.empty() && only_a.empty() && only_b.empty() && shapes.empty() && dtypes.empty() &&
           tensors.empty();
  }
};

// Tensors whose fingerprints are equal are not read; the others are, in windows of both.
// Errors: those of read_manifest and load_pieces.
Result<CheckpointDiff> diff_checkpoints(FileSystem& file_system, const std::filesystem::path& a,
                                        const std::filesystem::path& b, int threads,
                                        const Progress& progress);

}  // namespace lockstep::checkpoint
