// The run's identity: everything that may change a bit of the loss curve, as sorted "name=value"
// lines, and its hash. Stored in every checkpoint; a resume that differs names each differing
// line.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "layout/model_spec.h"

namespace lockstep::core {

struct Identity {
  std::vector<std::string> lines;
  std::string hash() const;
};
// Config lines, build (LibTorch version, precision, threads) and device; for a model from a Hugging
// Face folder also its architecture and `initial_weights`: their hash, or "random".
Identity make_identity(const Config& config, const layout::ModelSpec& spec,
                       const std::string& data_hash, const std::string& initial_weights);
// cpu_identity(), and the name of the GPU where there is one.
std::string device_identity();

}  // namespace lockstep::core
