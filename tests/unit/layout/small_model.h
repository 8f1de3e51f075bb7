// Small decoders for tests: one of a few numbers, to see how its units are treated; and the config
// of one in bf16 whose step and memory are counted.
#pragma once

#include "layout/decoder_model.h"

namespace lockstep::layout {

inline ModelSpec small_model(int64_t layers, bool tied = false, int64_t lora_rank = 0) {
  DecoderShape shape;
  shape.dim = 8;
  shape.n_layers = layers;
  shape.n_heads = 2;
  shape.n_kv_heads = 1;
  shape.head_dim = 4;
  shape.ffn_dim = 16;
  shape.vocab_size = 50;
  shape.tied = tied;
  LoraConfig lora;
  lora.rank = lora_rank;
  return create(shape, lora);
}

inline Config small_config(ShardingStrategy strategy, int64_t vocab_size, int64_t slots) {
  Config c;
  c.model.dim = 512;
  c.model.n_heads = 8;
  c.model.n_kv_heads = 4;
  c.model.head_dim = 64;
  c.model.ffn_dim = 1408;
  c.model.n_layers = 4;
  c.model.vocab_size = vocab_size;
  c.training.local_batch_size = 1;
  c.training.seq_len = 128;
  c.training.slots = slots;
  c.training.mixed_precision_param = FloatType::kBfloat16;
  c.parallelism.strategy = strategy;
  return c;
}

inline ModelSpec model_of(const Config& config) {
  return create(shape_of_keys(config, 0).value(), config.lora);
}

}  // namespace lockstep::layout
