#include "core/model/decoder.h"

#include "core/model/block_stage.h"

namespace lockstep::core {
namespace {

// 0 where a query sees a key, and minus infinity where not: later keys, and those `window` back.
at::Tensor window_mask(int64_t seq_len, int64_t window, at::ScalarType compute) {
  const at::Tensor ones = at::ones({seq_len, seq_len}, at::kBool);
  const at::Tensor seen = ones.tril(0).logical_and(ones.triu(1 - window));
  return at::zeros({seq_len, seq_len}, at::TensorOptions(compute))
      .masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
}

}  // namespace

StageSequence make_decoder(const model_spec::ModelSpec& spec, int64_t seq_len,
                           at::ScalarType compute) {
  const model_spec::DecoderShape& shape = spec.shape;
  AttentionTables tables;
  if (shape.learned_positions == 0)
    tables.rotary = std::make_shared<const RotaryTable>(
        RotaryTable::create(seq_len, shape.head_dim, shape.rope_theta, shape.rope_scaling));
  std::map<int64_t, at::Tensor> masks;  // by window
  StageSequence sequence;
  sequence.stages.push_back(std::make_unique<EmbeddingStage>(0, shape.learned_positions > 0));
  for (int64_t layer = 0; layer < shape.n_layers; ++layer) {
    const int unit = static_cast<int>(layer) + 1;
    if (shape.family == "linear") {
      sequence.stages.push_back(
          std::make_unique<LinearStage>(unit, spec.units[static_cast<size_t>(unit)]));
      continue;
    }
    const int64_t window = shape.window(layer);
    tables.mask_TT.reset();
    if (window > 0 && window < seq_len) {
      at::Tensor& mask = masks[window];
      if (!mask.defined()) mask = window_mask(seq_len, window, compute);
      tables.mask_TT = mask;
    }
    sequence.stages.push_back(std::make_unique<BlockStage>(unit, spec, tables));
  }
  sequence.loss = std::make_unique<HeadStage>(static_cast<int>(spec.units.size()) - 1, 0, spec);
  return sequence;
}

at::Tensor logits_of(const model_spec::ModelSpec& spec, UnitParts head_units,
                     const at::Tensor& x_RD) {
  const Norm norm(spec.units.back(), model_spec::Role::kNorm1, model_spec::Role::kNorm1Bias,
                  spec.shape.norm_eps);
  at::Tensor kept;
  const at::Tensor h = norm.forward(head_units[0], x_RD, kept);
  const at::Tensor& weight =
      spec.shape.tied ? head_units[1].weight(0)
                      : head_units[0].weight(spec.units.back().find(model_spec::Role::kHead));
  return at::mm(h, weight.t()).to(at::kFloat);
}

}  // namespace lockstep::core
