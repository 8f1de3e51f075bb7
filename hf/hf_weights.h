// The weights of a Hugging Face folder: model.safetensors, or model.safetensors.index.json and the
// files it names. Names and shapes are those of ModelSpec, so a tile of a parameter is a range of
// bytes of one file: every rank reads its own tiles and nobody holds the whole model. One process
// looks at all files; the others of a job are told what it found, and open a file when they first
// read from it.
// Thread: read() may run in several threads.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "hf/weight_places.h"
#include "layout/model_spec.h"

namespace lockstep::hf {

class HfWeights {
 public:
  // Checks that the files are whole and hold exactly the parameters of `spec`, in their shapes;
  // adapters are not looked for. Not
  // counted as unexpected: lm_head.weight of a tied model, if it equals the embedding (all of both
  // is read to see that), and buffers that old versions of
  // transformers saved. A base model's names ("layers.0…", "h.0…") are understood.
  // Errors: kConfig, naming files and tensors.
  static Result<std::unique_ptr<HfWeights>> open(FileSystem& file_system,
                                                 const std::filesystem::path& folder,
                                                 const layout::ModelSpec& spec);

  // The same folder, as another process has found it. What is read from is compared with that: a
  // file's size when it is opened, and the first values of a tensor before any other of it.
  // Borrows `file_system`. Requires: places().hash was known there.
  HfWeights(FileSystem& file_system, std::filesystem::path folder, WeightPlaces told);

  // Elements [flat_start, flat_start + out.size()) of parameter `name`, as fp32.
  // Requires: a parameter of the spec, a range inside it. Errors: kIo, kCorrupt; kConfig, naming
  // the file: it is gone, or not the one that the other process saw.
  Result<void> read(const std::string& name, int64_t flat_start, std::span<float> out) const;

  // Of names, shapes, dtypes and the first values of each tensor: another set of weights has
  // another one, unless it was made to deceive. Reads these values, but once, and not where it was
  // told. Errors: kIo, kCorrupt.
  Result<std::string> hash();

  // Whole once hash() was asked.
  const WeightPlaces& places() const { return places_; }

 private:
  HfWeights(FileSystem& file_system, std::filesystem::path folder);
  Result<void> compare_head(const WeightPlaces::Tensor& head, const layout::ModelSpec& spec) const;
  Result<File*> opened(const std::string& name, const WeightPlaces::Tensor& tensor) const;

  FileSystem& file_system_;
  std::filesystem::path folder_;
  WeightPlaces places_;
  bool told_ = false;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<File>> files_;  // of places_; null: not opened yet
  mutable std::set<std::string> compared_;            // tensors, with what was told
};

// Whether a run starts from weights of model.hf_assets_path: not from random ones (model.init =
// random, or no such folder).
bool starts_from_folder(const Config& config);
// Those weights, or null for random ones. Errors: HfWeights::open's.
Result<std::unique_ptr<HfWeights>> initial_weights(FileSystem& file_system, const Config& config,
                                                   const layout::ModelSpec& spec);

}  // namespace lockstep::hf
