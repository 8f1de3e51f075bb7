// The model that a run's configuration asks for.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "config/sections.h"
#include "layout/model_spec.h"

namespace lockstep::hf {

// From config.json in model.hf_assets_path where that is given, else from the [model] keys;
// `vocab_size` is used where both leave it open. Errors: kConfig (also what a [model] key and
// config.json disagree on).
Result<layout::ModelSpec> configured_model(const Config& config, int64_t vocab_size);

}  // namespace lockstep::hf
