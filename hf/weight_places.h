// Where the weights of a Hugging Face folder lie, as one process has found it in the headers of the
// files, and a text of it: who has the text need not look. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/safetensors.h"

namespace lockstep::hf {

struct WeightPlaces {
  struct InFolder {
    std::string name;
    int64_t bytes = 0;  // of a file with tensors
  };
  struct Tensor {
    size_t file = 0;         // of files
    SafetensorsEntry entry;  // under our name
    uint64_t beginning = 0;  // a hash of its first values
  };
  std::vector<InFolder> files;            // none: there are no weights
  std::map<std::string, Tensor> tensors;  // by our name
  std::string hash;                       // HfWeights::hash(); "": that was not asked yet
};

// Requires: the hash is known, where there are weights.
std::string encode(const Result<WeightPlaces>& places);
// What the writer had: places or its error. Errors: kPeerLost too: these are not its words (it runs
// another version).
Result<WeightPlaces> parse_weight_places(const std::string& words);

}  // namespace lockstep::hf
