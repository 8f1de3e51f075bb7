#include "layout/model_spec.h"
#include "hf/configured_model.h"
#include "layout/decoder_model.h"

#include <gtest/gtest.h>

namespace lockstep::layout {
namespace {

Config small_llama() {
  Config c;
  c.model.dim = 64;
  c.model.n_layers = 2;
  c.model.n_heads = 4;
  c.model.n_kv_heads = 2;
  c.model.ffn_dim = 176;
  return c;
}

TEST(ModelSpec, CountsParametersAsTheArchitectureHasThem) {
  const auto spec = hf::configured_model(small_llama(), 257);
  ASSERT_TRUE(spec.ok());
  const int64_t block = 64 * 64 * 2 + 32 * 64 * 2 + 3 * 64 * 176 + 2 * 64;
  EXPECT_EQ(spec.value().parameter_count(), 2 * 257 * 64 + 64 + 2 * block);
  EXPECT_EQ(spec.value().units.size(), 4u);
}

TEST(ModelSpec, ATiedHeadHasNoWeightOfItsOwn) {
  Config c = small_llama();
  c.model.tie_word_embeddings = true;
  const auto tied = hf::configured_model(c, 257), untied = hf::configured_model(small_llama(), 257);
  EXPECT_EQ(untied.value().parameter_count() - tied.value().parameter_count(), 257 * 64);
  EXPECT_EQ(tied.value().units.back().params.size(), 1u);
  // The head's work is done all the same.
  EXPECT_DOUBLE_EQ(tied.value().flops_per_token(128), untied.value().flops_per_token(128));
}

TEST(ModelSpec, AGemmaBlockHasFourNorms) {
  DecoderShape shape;
  shape.dim = 64;
  shape.n_layers = 1;
  shape.n_heads = 4;
  shape.n_kv_heads = 2;
  shape.head_dim = 32;
  shape.ffn_dim = 96;
  shape.vocab_size = 50;
  shape.tied = shape.unit_offset_norms = shape.post_norms = shape.qk_norm = true;
  const ModelSpec spec = create(shape);
  std::vector<std::string> norms;
  for (const ParamSpec& param : spec.units[1].params)
    if (param.shape.size() == 1) {
      EXPECT_EQ(param.init_value, 0.0) << param.name << ": 1 + weight is 1 at first";
      norms.push_back(param.name.substr(std::string("model.layers.0.").size()));
    }
  EXPECT_EQ(norms, (std::vector<std::string>{
                       "input_layernorm.weight", "post_attention_layernorm.weight",
                       "pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight",
                       "self_attn.q_norm.weight", "self_attn.k_norm.weight"}));
  const UnitSpec& block = spec.units[1];
  const auto name_of = [&](Role role) {
    return block.params[static_cast<size_t>(block.find(role))].name;
  };
  EXPECT_EQ(name_of(Role::kPostNorm1), "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(name_of(Role::kNorm2), "model.layers.0.pre_feedforward_layernorm.weight");
}

TEST(ModelSpec, OfExpertsThoseThatATokenMeetsWork) {
  DecoderShape shape;
  shape.family = ModelFamily::kMixtral;
  shape.dim = 64;
  shape.n_layers = 2;
  shape.n_heads = shape.n_kv_heads = 4;
  shape.head_dim = 16;
  shape.ffn_dim = 96;
  shape.vocab_size = 50;
  shape.experts = 5;
  shape.experts_per_token = 2;
  const ModelSpec spec = create(shape);
  const int64_t expert = 3 * 64 * 96, rest = 4 * 64 * 64 + 5 * 64 + 2 * 64;
  EXPECT_EQ(spec.parameter_count(), 2 * 50 * 64 + 64 + 2 * (5 * expert + rest));
  EXPECT_EQ(spec.active_count(), 2 * 50 * 64 + 64 + 2 * (2 * expert + rest));
  const double working = static_cast<double>(spec.active_count() - 50 * 64);
  EXPECT_DOUBLE_EQ(spec.flops_per_token(128), 6 * working + 12.0 * 2 * 4 * 16 * 128);
  const UnitSpec& block = spec.units[1];
  const auto gate = static_cast<size_t>(block.find(Role::kGate));
  EXPECT_EQ(block.params[gate - 1].name, "model.layers.0.block_sparse_moe.gate.weight");
  EXPECT_EQ(block.params[gate].name, "model.layers.0.block_sparse_moe.experts.0.w1.weight");
  EXPECT_EQ(block.params[gate + 3].name, "model.layers.0.block_sparse_moe.experts.1.w3.weight");
  EXPECT_EQ(block.params[gate + 10].name, "model.layers.0.block_sparse_moe.experts.0.w2.weight");
  shape.family = ModelFamily::kQwen3Moe;
  EXPECT_EQ(create(shape).units[1].params[gate + 3].name,
            "model.layers.0.mlp.experts.1.up_proj.weight");
  EXPECT_EQ(create(shape).active_count(), spec.active_count());
}

TEST(ModelSpec, FlopsFollowTheCommonConvention) {
  const auto spec = hf::configured_model(small_llama(), 257).value();
  const double working = static_cast<double>(spec.parameter_count() - 257 * 64);
  EXPECT_DOUBLE_EQ(spec.flops_per_token(128), 6 * working + 12.0 * 2 * 4 * 16 * 128);
}

TEST(ModelSpec, AStackOfLinearLayersHasOneMatrixALayer) {
  Config c = small_llama();
  c.model.name = ModelFamily::kLinear;
  const auto spec = hf::configured_model(c, 257).value();
  EXPECT_EQ(spec.parameter_count(), 2 * 257 * 64 + 64 + 2 * 64 * 64);
  EXPECT_EQ(spec.units[1].params.size(), 1u);
}

TEST(ModelSpec, ATileBelongsToOneParameter) {
  const ParamSpec exact{"a", {64, 64}, 0}, over{"b", {4097}, 0};
  EXPECT_EQ(exact.tiles(), 1);
  EXPECT_EQ(over.tiles(), 2);
  EXPECT_EQ((UnitSpec{"u", {exact, over}}.tiles()), 3);
}

TEST(ModelSpec, ImpossibleSizesAreNamed) {
  Config c = small_llama();
  c.model.n_heads = 5;
  c.model.n_kv_heads = 5;
  const auto bad = hf::configured_model(c, 257);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, Code::kConfig);
  EXPECT_NE(bad.error().message.find("n_heads"), std::string::npos) << bad.error().message;
  EXPECT_FALSE(hf::configured_model(small_llama(), 0).ok());
}

}  // namespace
}  // namespace lockstep::layout
