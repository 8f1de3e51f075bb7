// What export does for a run that trained adapters: their layout as the library PEFT reads it, and
// base weights with the adapters added.
#pragma once

#include <functional>
#include <span>

#include "base/file_system.h"
#include "layout/model_spec.h"

namespace lockstep::hf {

// Reads elements [first, first + out.size()) of a tensor of the given name and shape, as fp32.
using TensorReader =
    std::function<Result<void>(const std::string& name, const std::vector<int64_t>& shape,
                               int64_t first, std::span<float> out)>;

// PEFT's name of one of our parameters: its models have the base model inside.
inline constexpr const char* kPeftPrefix = "base_model.model.";

// adapter_config.json. `base`: the folder of the base model, or "".
std::string adapter_config_json(const Config::Lora& lora, const layout::DecoderShape& shape,
                                const std::string& base);

// W + (alpha / rank) B A for every matrix W of `base` that `adapters` has a pair for; all else as
// it is. Thread: one. Errors: those of the readers.
TensorReader merged(TensorReader base, TensorReader adapters, const layout::ModelSpec& spec,
                    const Config::Lora& lora);

}  // namespace lockstep::hf
