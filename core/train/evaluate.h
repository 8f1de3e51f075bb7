// The loss of a model on given tokens, and its logits. One process, in fp32.
#pragma once

#include <filesystem>
#include <string>

#include "base/file_system.h"
#include "config/config.h"
#include "core/train/model_weights.h"

namespace lockstep::core {

struct EvaluateOptions {
  // .npy, integers [batches, sequences, T]; labels: data/loader/npy_dataset.h. "": the folder of
  // token shards in config.data.path, as batches of config.training's shape.
  std::filesystem::path tokens;
  // Of an .npy alone: .npy to write, fp32 [batches, sequences, T, V]; "": none.
  std::filesystem::path logits;
  std::string split = "val";  // of the shards
  WeightSource weights;
};
struct Evaluation {
  double loss = 0;  // mean over the counted labels
  int64_t counted_tokens = 0, parameters = 0;
};
// Errors: kConfig, kNotFound, kCorrupt, kIo, kNoSpace.
Result<Evaluation> evaluate(FileSystem& file_system, Config config, const EvaluateOptions& options);

}  // namespace lockstep::core
