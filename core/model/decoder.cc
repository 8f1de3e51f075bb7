#include "core/model/decoder.h"

#include "core/model/block_stage.h"

namespace lockstep::core {
StageSequence make_decoder(const model_spec::ModelSpec& spec, int64_t seq_len) {
  const auto rotary = std::make_shared<const RotaryTable>(
      RotaryTable::create(seq_len, spec.shape.head_dim, spec.shape.rope_theta));
  StageSequence sequence;
  sequence.stages.push_back(std::make_unique<EmbeddingStage>(0));
  for (int layer = 0; layer < static_cast<int>(spec.shape.n_layers); ++layer)
    sequence.stages.push_back(std::make_unique<BlockStage>(layer + 1, spec.shape, rotary));
  sequence.loss =
      std::make_unique<HeadStage>(static_cast<int>(spec.units.size()) - 1, 0, spec.shape);
  return sequence;
}

at::Tensor logits_at(const model_spec::ModelSpec& spec, std::span<Unit*> head_units,
                     const at::Tensor& x, int64_t seq_len, int64_t position) {
  at::Tensor scale;
  const at::Tensor last = x.view({-1, seq_len, spec.shape.dim}).select(1, position).contiguous();
  const at::Tensor h = rms_norm(last, head_units[0]->weight(0), spec.shape.norm_eps, scale);
  const at::Tensor& weight = spec.shape.tied ? head_units[1]->weight(0) : head_units[0]->weight(1);
  return at::mm(h, weight.t()).to(at::kFloat);
}

}  // namespace lockstep::core
