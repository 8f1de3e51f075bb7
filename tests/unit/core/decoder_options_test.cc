// Options of the decoder: recomputed activations, attention without the fused kernel, dropout, and
// the loss's extra terms; each against what it must equal.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "base/hash.h"
#include "base/json.h"
#include "core/model/dropout.h"
#include "core/train/memory_stats.h"
#include "tests/unit/core/whole_model.h"

namespace lockstep::core {
namespace {

TEST(ActivationCheckpoint, RecomputedBlocksGiveTheSameBits) {
  for (const layout::DecoderShape& shape : families())
    for (at::ScalarType compute : {at::kFloat, at::kBFloat16})
      for (double dropout : {0.0, 0.2})
        for (bool fused : {true, false}) {
          DecoderOptions options = options_of(compute);
          options.dropout = dropout;
          options.fused_attention = fused;
          WholeModel kept(shape, options);
          const auto [loss, gradient] = kept.gradients(some_slot());
          for (int64_t every : {1, 2}) {
            options.recompute_every = every;
            WholeModel recomputed(shape, options);
            const auto [loss2, gradient2] = recomputed.gradients(some_slot());
            EXPECT_EQ(loss, loss2);
            EXPECT_TRUE(at::equal(gradient, gradient2))
                << shape.gpt2 << " " << compute << " " << dropout << " every " << every;
          }
        }
}

// The blocks' activations of a slot, counted by the allocator.
TEST(ActivationCheckpoint, HoldsTheActivationsOfOneBlock) {
  install_counting_allocator();
  layout::DecoderShape shape = families()[0];
  shape.dim = 32;
  shape.n_layers = 8;
  shape.ffn_dim = 128;
  const int64_t rows = 2 * 512;  // so that activations are more than gradients
  const at::Tensor ids = (at::arange(rows, at::kLong) % 30).view({2, 512});
  const auto peak_of = [&](int64_t every) {
    DecoderOptions options = options_of(at::kFloat, 512);
    options.recompute_every = every;
    WholeModel model(shape, options);
    const SlotInput slot{ids, ids, 1.0};
    model.gradients(slot);  // what stays allocated is there from now on
    memory_line("begin", 0);
    const double before = static_cast<double>(memory_stats().allocated_bytes);
    EXPECT_TRUE(model.schedule->train_slot(slot, 0).ok() && model.schedule->finish_step().ok());
    const auto line = nlohmann::json::parse(memory_line("end", 0));
    return line.at("stage_max_memory_allocated_GB").get<double>() * 1e9 - before;
  };
  // Of each block: x, h1, x2, h2, attention's output, qkv, gate and up, their product.
  const double block_bytes = 1.0 * rows * (4 * 32 + 4 * 8 + 8 * 8 + 3 * 128) * 4;
  const double none = peak_of(0), full = peak_of(1), half = peak_of(2);
  EXPECT_GT(none, 8 * block_bytes);
  EXPECT_LT(full, 3 * block_bytes + 8.0 * rows * 32 * 4);
  EXPECT_GT(half, full + 2 * block_bytes);
  EXPECT_LT(half, none - 2 * block_bytes);
}

// The written-out backward against differences of the training loss: along the gradient it must
// fall as the gradient's norm says. Dropout's mask is that of the slot, so it is part of the slope.
// Which experts a row has jumps with the weights: here it has all of them.
void expect_slope(layout::DecoderShape shape, const DecoderOptions& options) {
  shape.experts_per_token = shape.experts;
  WholeModel model(shape, options);
  const SlotInput slot = some_slot();
  const auto [loss, gradient] = model.gradients(slot);
  const auto loss_now = [&] { return model.gradients(slot).first; };
  EXPECT_NEAR(loss, loss_now(), 1e-9);
  int64_t offset = 0;
  for (Unit* unit : model.trained()) {
    for (const Segment& s : unit->state.held_segments()) {
      const auto& param = unit->spec.params[static_cast<size_t>(s.param)];
      at::Tensor weight = unit->state.master_S.narrow(0, s.range_offset, s.length);
      const at::Tensor g = gradient.narrow(0, offset + s.range_offset, s.length);
      const double norm = g.norm().item<double>();
      ASSERT_GT(norm, 1e-4) << param.name << " has no gradient";
      const double h = 5e-3 / norm;
      const at::Tensor before = weight.clone();
      weight.add_(g, h / 2);
      const double above = loss_now();
      weight.copy_(before).sub_(g, h / 2);
      const double below = loss_now();
      weight.copy_(before);
      const double expected = h * norm * norm;  // beside the rounding of an fp32 loss near 60
      EXPECT_NEAR(above - below, expected, 0.01 * expected + 1e-5) << param.name;
    }
    offset += unit->layout.held_elements();
  }
}

TEST(Families, TheGradientIsTheSlopeOfTheLoss) {
  for (const layout::DecoderShape& shape : families()) expect_slope(shape, options_of(at::kFloat));
}

TEST(Families, TheGradientOfUnnormedRoutingIsTheSlopeOfTheLoss) {
  layout::DecoderShape shape = experts_shape();
  shape.normed_routing = false;
  expect_slope(shape, options_of(at::kFloat));
}

TEST(DecoderOptions, TheGradientIsTheSlopeOfTheLossWithEveryOption) {
  for (const layout::DecoderShape& shape : families()) {
    DecoderOptions options = options_of(at::kFloat);
    options.fused_attention = false;
    options.dropout = 0.25;
    options.recompute_every = 2;
    options.loss = {1e-3, 0.1};
    expect_slope(shape, options);
  }
}

TEST(DecoderOptions, TheGradientOfAdaptersIsTheSlopeOfTheLoss) {
  for (const layout::DecoderShape& shape : families()) {
    DecoderOptions options = options_of(at::kFloat);
    options.lora = {3,
                    5,
                    0.25,
                    {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
                     "c_attn", "c_proj", "c_fc"}};
    options.dropout = 0.25;
    options.recompute_every = 2;
    expect_slope(shape, options);
  }
}

TEST(DecoderOptions, PlainAttentionIsNearTheFusedOne) {
  for (const layout::DecoderShape& shape : families())
    for (const auto& [compute, tolerance] :
         {std::pair(at::kFloat, 1e-5), std::pair(at::kBFloat16, 0.03)}) {
      DecoderOptions options = options_of(compute);
      WholeModel fused(shape, options);
      options.fused_attention = false;
      WholeModel plain(shape, options);
      const at::Tensor a = fused.gradients(some_slot()).second;
      const at::Tensor b = plain.gradients(some_slot()).second;
      EXPECT_LT(((a - b).norm() / a.norm()).item<double>(), tolerance);
    }
}

// --- dropout ---

SlotInput slot_at(int64_t step, int64_t slot) {
  return {at::zeros({1, 1}, at::kLong), {}, 1.0, step, slot};
}
at::Tensor mask_of(const Dropout& dropout, int64_t n, const SlotInput& slot) {
  at::Tensor ones = at::ones({n}, at::kFloat);
  dropout.apply(ones, slot);
  return ones;
}

TEST(Dropout, IsTheCounterGeneratorsFunctionOfTheElement) {
  const Dropout dropout(0.3, 42, "layers.1/attention");
  const at::Tensor mask = mask_of(dropout, 1000, slot_at(5, 2));
  const uint64_t key = purpose_key(42, "dropout/layers.1/attention");
  for (int64_t e = 0; e < 1000; ++e) {
    const uint64_t counter = static_cast<uint64_t>(e / 64 * 16 + e % 16);
    const uint32_t word = philox(key, (uint64_t{5} << 24) + 2, counter).word[e % 64 / 16];
    EXPECT_EQ(mask[e].item<float>(), word >= 0.3 * 4294967296.0 ? 1.0f / 0.7f : 0.0f) << e;
  }
}

TEST(Dropout, DropsTheShareAndKeepsTheMean) {
  const int64_t n = 1 << 20;
  for (double p : {0.1, 0.5, 0.9}) {
    const at::Tensor mask = mask_of(Dropout(p, 1, "x"), n, slot_at(1, 0));
    const double five_sigma = 5 * std::sqrt(p * (1 - p) / static_cast<double>(n));
    EXPECT_NEAR(mask.eq(0).to(at::kDouble).mean().item<double>(), p, five_sigma);
    EXPECT_NEAR(mask.to(at::kDouble).mean().item<double>(), 1.0, five_sigma / (1 - p));
    // Neighbours, and the words of one draw, are independent.
    for (int64_t lag : {1, 16, 64}) {
      const at::Tensor dropped = mask.eq(0).to(at::kDouble) - p;
      const double both =
          (dropped.narrow(0, 0, n - lag) * dropped.narrow(0, lag, n - lag)).mean().item<double>();
      EXPECT_NEAR(both, 0.0, 5 * p * (1 - p) / std::sqrt(static_cast<double>(n))) << lag;
    }
  }
}

TEST(Dropout, DiffersBySeedPlaceStepAndSlotAndNotByThreads) {
  const int64_t n = 100'003;
  const Dropout dropout(0.5, 1, "a");
  const at::Tensor mask = mask_of(dropout, n, slot_at(1, 1));
  for (const at::Tensor& other :
       {mask_of(Dropout(0.5, 2, "a"), n, slot_at(1, 1)),
        mask_of(Dropout(0.5, 1, "b"), n, slot_at(1, 1)), mask_of(dropout, n, slot_at(2, 1)),
        mask_of(dropout, n, slot_at(1, 2)), mask_of(dropout, n, slot_at(0, 1))})
    EXPECT_NEAR(mask.eq(other).to(at::kDouble).mean().item<double>(), 0.5, 0.01);
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  EXPECT_TRUE(at::equal(mask, mask_of(dropout, n, slot_at(1, 1))));
  at::set_num_threads(threads);
}

TEST(Dropout, IsOffInEvaluationAndWithProbabilityZero) {
  const layout::DecoderShape shape = families()[0];
  DecoderOptions options = options_of(at::kFloat);
  WholeModel plain(shape, options);
  options.dropout = 0.4;
  WholeModel dropped(shape, options);
  const SlotInput slot = some_slot();
  EXPECT_EQ(plain.loss_of(slot), dropped.loss_of(slot));
  EXPECT_NE(plain.gradients(slot).first, dropped.gradients(slot).first);
  SlotInput next = some_slot();
  ++next.step;
  EXPECT_NE(dropped.gradients(slot).first, dropped.gradients(next).first);
}

}  // namespace
}  // namespace lockstep::core
