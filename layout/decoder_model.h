// From the sizes of a decoder to its ModelSpec: units, parameters and their first values.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "config/sections.h"
#include "layout/model_spec.h"

namespace lockstep::layout {

// The shape that the [model] keys describe; `data_vocab_size` where they leave that open.
// Errors: kConfig.
Result<DecoderShape> shape_of_keys(const Config& config, int64_t data_vocab_size);
// Modules of `lora` that the family has not are left out; create_checked refuses them.
ModelSpec create(const DecoderShape& shape, const Config::Lora& lora = {});
// Errors: kConfig, heads or adapters that the shape cannot have.
Result<ModelSpec> create_checked(const DecoderShape& shape, const Config::Lora& lora);

}  // namespace lockstep::layout
