#include "core/model/decoder.h"

#include "core/kernels/matmul.h"
#include "core/model/block_stage.h"
#include "core/model/embedding_stage.h"
#include "core/model/head_stage.h"
#include "layout/stage_sizes.h"

namespace lockstep::core {

DecoderOptions DecoderOptions::create(const Config& config, at::ScalarType compute,
                                      at::Device device) {
  DecoderOptions o;
  o.compute = compute;
  o.device = device;
  o.seq_len = config.training.seq_len;
  o.recompute_every = layout::recompute_every(config.activation_checkpoint);
  o.fused_attention = config.model.fused_attention;
  o.dropout = config.model.dropout;
  o.seed = static_cast<uint64_t>(config.training.seed);
  o.lora = config.lora;
  o.loss = {config.training.z_loss, config.training.label_smoothing};
  return o;
}

StageSequence make_decoder(const layout::ModelSpec& spec, const DecoderOptions& o) {
  const layout::DecoderShape& shape = spec.shape;
  BlockTables tables;
  if (shape.learned_positions == 0) {
    const RotaryTable table =
        RotaryTable::create(o.seq_len, shape.head_dim, shape.rope_theta, shape.rope_scaling);
    tables.rotary = std::make_shared<const RotaryTable>(
        RotaryTable{table.cos_TH.to(o.device), table.sin_TH.to(o.device)});
  }
  StageSequence sequence;
  sequence.units = layout::stages_of(spec);
  sequence.stages.push_back(std::make_unique<EmbeddingStage>(
      shape.learned_positions > 0, Dropout(o.dropout, o.seed, spec.units[0].name)));
  for (int64_t layer = 0; layer < shape.n_layers; ++layer) {
    if (shape.family == ModelFamily::kLinear) {
      sequence.stages.push_back(
          std::make_unique<LinearStage>(spec.units[static_cast<size_t>(layer) + 1]));
      continue;
    }
    tables.attention = {shape.n_heads, shape.n_kv_heads, shape.head_dim, shape.window(layer),
                        o.fused_attention};
    const bool recompute = layout::recomputed(o.recompute_every, layer);
    sequence.stages.push_back(
        std::make_unique<BlockStage>(layer, spec, tables, recompute, o.dropout, o.lora, o.seed));
  }
  sequence.loss = std::make_unique<HeadStage>(spec, o.loss);
  return sequence;
}

at::Tensor logits_of(const layout::ModelSpec& spec, UnitParts head_units, const at::Tensor& x_RD) {
  const Norm norm(spec.base().back(), layout::Role::kNorm1, layout::Role::kNorm1Bias,
                  spec.shape.norm_eps);
  at::Tensor kept;
  const at::Tensor h = norm.forward(head_units[0], x_RD, kept);
  const at::Tensor& weight =
      spec.shape.tied ? head_units[1].weight(0)
                      : head_units[0].weight(spec.base().back().find(layout::Role::kHead));
  return product(h, weight.t()).to(at::kFloat);
}

}  // namespace lockstep::core
