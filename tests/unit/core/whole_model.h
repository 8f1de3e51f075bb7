// A small model with random weights on one rank, for tests of the decoder.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/roll.h>
#include <gtest/gtest.h>

#include "core/comm/join.h"
#include "core/model/decoder.h"
#include "core/sharding/schedule.h"
#include "layout/decoder_model.h"

namespace lockstep::core {

inline at::Tensor random_tensor(at::IntArrayRef shape, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::TensorOptions(at::kFloat));
}
inline double max_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}
inline at::Tensor leaf(const at::Tensor& t) { return t.to(at::kDouble).requires_grad_(); }

// A whole model on one rank: its units, and the gradients of one slot.
struct WholeModel {
  WholeModel(const layout::DecoderShape& shape, DecoderOptions options)
      : spec(layout::create(shape, options.lora)) {
    at::set_num_threads(1);  // as a rank; many threads wait for each other in work this small
    strategy.bf16 = options.compute == at::kBFloat16;
    membership = std::make_unique<Membership>(std::move(join({})).value());
    uint64_t seed = 100;
    for (const layout::UnitSpec& unit : spec.units) {
      units.push_back(std::make_unique<Unit>(unit, strategy, membership->groups(), pools));
      ShardState& state = units.back()->state;
      state.make_master();
      parts.emplace_back(*units.back(), 0, unit);
      for (const Segment& s : state.held_segments()) {
        const double std = unit.params[static_cast<size_t>(s.param)].shape.size() == 1 ? 0.3 : 0.15;
        state.master_S.narrow(0, s.range_offset, s.length)
            .copy_(random_tensor({s.length}, ++seed) * std);
      }
      state.refresh_copy();
    }
    stages = make_decoder(spec, options);
    schedule = std::make_unique<Schedule>(parts, stages, strategy, 0, watch);
  }
  // Loss, then every trained unit's gradient, one after the other.
  std::pair<double, at::Tensor> gradients(const SlotInput& slot) {
    const double loss = schedule->train_slot(slot, 0).value();
    EXPECT_TRUE(schedule->finish_step().ok());
    std::vector<at::Tensor> all;
    for (Unit* unit : trained()) all.push_back(unit->grads.folded().clone());
    return {loss, at::cat(all)};
  }
  std::vector<Unit*> trained() {
    std::vector<Unit*> list;
    for (auto& unit : units)
      if (!unit->spec.frozen) list.push_back(unit.get());
    return list;
  }
  double loss_of(const SlotInput& slot) { return schedule->evaluate_slot(slot).value(); }

  layout::ModelSpec spec;
  Strategy strategy;
  Pools pools;
  std::unique_ptr<Membership> membership;
  std::vector<std::unique_ptr<Unit>> units;
  std::vector<UnitPart> parts;
  StageSequence stages;
  PhaseWatch watch{at::kCPU};
  std::unique_ptr<Schedule> schedule;
};

inline layout::DecoderShape shape_with_everything(bool gpt2) {
  layout::DecoderShape s;
  s.dim = 24;
  s.n_layers = 2;
  s.n_heads = 4;
  s.n_kv_heads = gpt2 ? 4 : 2;
  s.head_dim = gpt2 ? 6 : 8;
  s.ffn_dim = 20;
  s.vocab_size = 30;
  s.gpt2 = gpt2;
  s.learned_positions = gpt2 ? 12 : 0;
  s.qkv_bias = s.o_bias = s.mlp_bias = true;
  s.qk_norm = !gpt2;
  s.tied = gpt2;
  if (!gpt2) {
    s.rope_scaling = {layout::RopeType::kLlama3, 4, 1, 4, 16};
    s.windows = {0, 3};
  }
  return s;
}

// Gemma 2 and 3 in one: caps, norms before and behind branches and of heads, two bases of rotation.
inline layout::DecoderShape gemma_shape() {
  layout::DecoderShape s = shape_with_everything(false);
  s.qkv_bias = s.o_bias = s.mlp_bias = false;
  s.tied = s.unit_offset_norms = s.post_norms = s.geglu = true;
  s.embedding_scale = 4.9;
  s.score_cap = 4;
  s.logit_cap = 8;
  s.query_scalar = 5;
  s.local_rope_theta = 100;
  return s;
}

// Five experts, two of them for each row.
inline layout::DecoderShape experts_shape() {
  layout::DecoderShape s = shape_with_everything(false);
  s.family = ModelFamily::kQwen3Moe;
  s.mlp_bias = false;
  s.experts = 5;
  s.experts_per_token = 2;
  s.normed_routing = true;
  return s;
}

// Grouped queries; gpt2; gemma; experts; everything with a window: norms of heads, biases.
inline std::vector<layout::DecoderShape> families() {
  layout::DecoderShape llama = shape_with_everything(false);
  llama.qkv_bias = llama.o_bias = llama.mlp_bias = llama.qk_norm = false;
  llama.windows.clear();
  return {llama, shape_with_everything(true), gemma_shape(), experts_shape(),
          shape_with_everything(false)};
}

inline SlotInput some_slot() {
  const at::Tensor ids = (at::arange(2 * 9, at::kLong) * 7 % 30).view({2, 9});
  return {ids, at::roll(ids, -1, 1).contiguous(), 1.0, /*step=*/3, /*slot=*/1};
}

inline DecoderOptions options_of(at::ScalarType compute, int64_t seq_len = 9) {
  DecoderOptions options;
  options.compute = compute;
  options.seq_len = seq_len;
  options.seed = 7;
  return options;
}

}  // namespace lockstep::core
