// The decoder as a sequence of stages: embedding, blocks, head with loss. Forward and
// backward are written out (no autograd graph): parameter gradients land in the exchange buffer,
// what is saved is known, and the order of every sum is fixed.
#pragma once

#include "config/config.h"
#include "core/kernels/softmax_kernels.h"
#include "core/sharding/stage.h"
#include "layout/model_spec.h"

namespace lockstep::core {

// What of a config the stages need to know, beside the model's shape.
struct DecoderOptions {
  at::ScalarType compute = at::kFloat;  // dtype of activations
  int64_t seq_len = 0;
  // Blocks k-1, 2k-1, … keep only their input between forward and backward, and run forward again
  // in backward: the same bits. 0: none; 1: all.
  int64_t recompute_every = 0;
  bool fused_attention = true;
  double dropout = 0;  // while training: of the embedding's and of each branch's output
  uint64_t seed = 0;   // of dropout's masks
  LoraConfig lora;     // for a spec with adapters
  TokenLoss loss;      // while training
  at::Device device = at::kCPU;

  static DecoderOptions create(const Config& config, at::ScalarType compute,
                               at::Device device = at::kCPU);
};

// `spec` outlives the stages. Unit indices are those of spec.units.
StageSequence make_decoder(const layout::ModelSpec& spec, const DecoderOptions& options);

// Errors: kConfig, where a device of that kind does not compute the model.
Result<void> check_device(const layout::ModelSpec& spec, at::Device device);

// Logits [R, V] fp32 of the rows x [R, D] of what Schedule::forward_only gives, the head's units
// gathered.
at::Tensor logits_of(const layout::ModelSpec& spec, UnitParts head_units, const at::Tensor& x_RD);

// Fills `out`, fp32, with the initial values of a parameter from element `first` on: a function of
// (seed, parameter name, element index), the same for every cut (docs/ARCHITECTURE.md, rule 6) and
// device. Normal by Box-Muller from Philox words, uniform by them as they are; norms are ones,
// biases zeros.
void initialize_parameter(const layout::ParamSpec& param, uint64_t seed, int64_t first,
                          const at::Tensor& out);

}  // namespace lockstep::core
