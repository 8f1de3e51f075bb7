// The weights of a Hugging Face folder: model.safetensors, or model.safetensors.index.json and the
// files it names. Names and shapes are those of ModelSpec, so a tile of a parameter is a range of
// bytes of one file: every rank reads its own tiles and nobody holds the whole model.
// Thread: read() may run in several threads.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "base/safetensors.h"
#include "layout/model_spec.h"

namespace lockstep::hf {

class HfWeights {
 public:
  // Checks that the files are whole and hold exactly the parameters of `spec`, in their shapes;
  // adapters are not looked for. Not
  // counted as unexpected: lm_head.weight of a tied model, and buffers that old versions of
  // transformers saved. A base model's names ("layers.0…", "h.0…") are understood.
  // Errors: kConfig, naming files and tensors.
  static Result<std::unique_ptr<HfWeights>> open(FileSystem& file_system,
                                                 const std::filesystem::path& folder,
                                                 const layout::ModelSpec& spec);

  // Elements [flat_start, flat_start + out.size()) of parameter `name`, as fp32.
  // Requires: a parameter of the spec, a range inside it. Errors: kIo, kCorrupt.
  Result<void> read(const std::string& name, int64_t flat_start, std::span<float> out) const;

  // Of names, shapes, dtypes and the first values of each tensor: another set of weights has
  // another one, unless it was made to deceive.
  Result<std::string> hash() const;

 private:
  struct Place {
    File* file = nullptr;
    SafetensorsEntry entry;
  };
  std::vector<std::unique_ptr<File>> files_;
  std::map<std::string, Place> places_;  // by our name
};

// The weights that a run starts from: those of model.hf_assets_path, or null for random ones
// (model.init = random, or no such folder). Errors: HfWeights::open's.
Result<std::unique_ptr<HfWeights>> initial_weights(FileSystem& file_system, const Config& config,
                                                   const layout::ModelSpec& spec);

}  // namespace lockstep::hf
