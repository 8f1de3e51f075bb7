// What config.json says of rotary positions.
#pragma once

#include "hf/config_fields.h"
#include "layout/model_spec.h"

namespace lockstep::hf {

// rope_theta and rope_scaling, or transformers 5's rope_parameters with both. A wrong field of
// `config` itself is kept there. Errors: kConfig, of the inner object.
Result<void> read_rope(Fields& config, layout::DecoderShape& shape, double default_theta);

// As gemma3_text has it: another base for layers with a window, rope_local_base_freq, which scaling
// does not change; or rope_parameters by layer type.
Result<void> read_layered_rope(Fields& config, layout::DecoderShape& shape);

}  // namespace lockstep::hf
