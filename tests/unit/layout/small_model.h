// A decoder of a few numbers, for tests of how its units are treated.
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

}  // namespace lockstep::layout
