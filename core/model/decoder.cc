#include "core/model/decoder.h"

#include "base/text.h"
#include "core/kernels/kernel_table.h"
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

namespace {

using SharedTable = std::shared_ptr<const RotaryTable>;

SharedTable rotary_on(const DecoderOptions& o, const layout::DecoderShape& shape, double theta,
                      const layout::RopeScaling& scaling) {
  const RotaryTable table = RotaryTable::create(o.seq_len, shape.head_dim, theta, scaling);
  return std::make_shared<const RotaryTable>(
      RotaryTable{table.cos_TH.to(o.device), table.sin_TH.to(o.device)});
}

// Those of layers without a window, and with one; null: none.
struct RotaryTables {
  SharedTable full, local;
};
RotaryTables rotary_tables(const DecoderOptions& o, const layout::DecoderShape& shape) {
  if (shape.learned_positions > 0) return {};
  const SharedTable full = rotary_on(o, shape, shape.rope_theta, shape.rope_scaling);
  return {full,
          shape.local_rope_theta > 0 ? rotary_on(o, shape, shape.local_rope_theta, {}) : full};
}

}  // namespace

Result<void> check_device(const layout::ModelSpec& spec, at::Device device) {
  if (spec.shape.experts == 0 || device.is_cpu()) return {};
  return Error{Code::kConfig,
               text("the family ", spec.shape.family,
                    " has experts, which run on CPUs only; hide the GPUs (CUDA_VISIBLE_DEVICES=)")};
}

StageSequence make_decoder(const layout::ModelSpec& spec, const DecoderOptions& o) {
  const layout::DecoderShape& shape = spec.shape;
  const RotaryTables rotary = rotary_tables(o, shape);
  std::shared_ptr<RouterBalance> balance;
  if (shape.balance_loss > 0)
    balance = std::make_shared<RouterBalance>(shape.balance_loss, shape.n_layers, shape.experts);
  StageSequence sequence;
  sequence.units = layout::stages_of(spec);
  sequence.stages.push_back(
      std::make_unique<EmbeddingStage>(shape.learned_positions > 0, shape.embedding_scale,
                                       Dropout(o.dropout, o.seed, spec.units[0].name)));
  for (int64_t layer = 0; layer < shape.n_layers; ++layer) {
    if (shape.family == ModelFamily::kLinear) {
      sequence.stages.push_back(
          std::make_unique<LinearStage>(spec.units[static_cast<size_t>(layer) + 1]));
      continue;
    }
    const BlockTables tables{shape.window(layer) > 0 ? rotary.local : rotary.full,
                             {.heads = shape.n_heads,
                              .key_heads = shape.n_kv_heads,
                              .head_dim = shape.head_dim,
                              .window = shape.window(layer),
                              .fused = o.fused_attention,
                              .query_scalar = shape.query_scalar,
                              .soft_cap = static_cast<float>(shape.score_cap)},
                             balance};
    const bool recompute = layout::recomputed(o.recompute_every, layer);
    sequence.stages.push_back(
        std::make_unique<BlockStage>(layer, spec, tables, recompute, o.dropout, o.lora, o.seed));
  }
  sequence.loss = std::make_unique<HeadStage>(spec, o.loss, balance);
  return sequence;
}

at::Tensor logits_of(const layout::ModelSpec& spec, UnitParts head_units, const at::Tensor& x_RD) {
  const Norm norm(spec.shape, spec.base().back(), layout::Role::kNorm1, layout::Role::kNorm1Bias);
  at::Tensor kept;
  const at::Tensor h = norm.forward(head_units[0], x_RD, {}, kept);
  const at::Tensor& weight =
      spec.shape.tied ? head_units[1].weight(0)
                      : head_units[0].weight(spec.base().back().find(layout::Role::kHead));
  at::Tensor logits = product(h, weight.t());
  if (const double cap = spec.shape.logit_cap; cap > 0)
    kernels_on(logits).soft_cap(logits, 1.0f, static_cast<float>(cap));
  return logits.to(at::kFloat);
}

}  // namespace lockstep::core
