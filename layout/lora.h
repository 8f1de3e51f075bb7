// Low-rank adapters (LoRA, arXiv 2106.09685): a chosen matrix W of a block gives, beside x W^T,
// (alpha / rank) (x A^T) B^T. Only A [rank, in] and B [out, rank] are trained. Names and first
// values are those of the library PEFT: "model.layers.0.self_attn.q_proj.lora_A.weight", A
// uniform in +- 1 / sqrt(in) (kaiming_uniform with a = sqrt(5)), B zero. Pure.
#pragma once

#include "config/config.h"
#include "layout/model_spec.h"

namespace lockstep::layout {

// "q_proj" of "model.layers.0.self_attn.q_proj.weight".
std::string module_of(const std::string& parameter);
// The same without ".weight": what an adapter's names begin with.
std::string path_of(const std::string& parameter);
// lora.target_modules, all matrices of a block for "all-linear", or the family's where it is empty.
std::vector<std::string> target_modules(const Config::Lora& lora, const DecoderShape& shape);
// Does the model have what is adapted? Errors: kConfig, naming what it has.
Result<void> check_modules(const Config::Lora& lora, const ModelSpec& base);
// Freezes what is there and adds a unit of adapters for each block. Its parameters are pairs A, B
// with the role of their matrix. Requires: lora.rank > 0, no adapters yet.
void add_adapters(const Config::Lora& lora, ModelSpec& spec);

}  // namespace lockstep::layout
