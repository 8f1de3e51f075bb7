#include "layout/lora.h"

#include <gtest/gtest.h>

#include "hf/configured_model.h"
#include "layout/decoder_model.h"
#include "layout/wrap.h"

namespace lockstep::layout {
namespace {

Config small() {
  Config c;
  c.model.dim = 64;
  c.model.n_layers = 2;
  c.model.n_heads = 4;
  c.model.n_kv_heads = 2;
  c.model.ffn_dim = 176;
  c.lora.rank = 8;
  return c;
}

TEST(Lora, AdaptersFollowTheFrozenBaseUnderPeftsNames) {
  Config c = small();
  c.lora.target_modules = {"v_proj", "down_proj"};
  const ModelSpec spec = hf::configured_model(c, 257).value();
  ASSERT_EQ(spec.units.size(), 6u);
  EXPECT_EQ(spec.base().size(), 4u);
  for (const UnitSpec& unit : spec.base()) EXPECT_TRUE(unit.frozen) << unit.name;
  const UnitSpec& second = spec.units[static_cast<size_t>(spec.adapter_unit(1))];
  EXPECT_FALSE(second.frozen);
  ASSERT_EQ(second.params.size(), 4u);
  EXPECT_EQ(second.params[0].name, "model.layers.1.self_attn.v_proj.lora_A.weight");
  EXPECT_EQ(second.params[0].shape, (std::vector<int64_t>{8, 64}));
  EXPECT_DOUBLE_EQ(second.params[0].init_bound, 0.125);
  EXPECT_EQ(second.params[3].name, "model.layers.1.mlp.down_proj.lora_B.weight");
  EXPECT_EQ(second.params[3].shape, (std::vector<int64_t>{64, 8}));
  EXPECT_EQ(second.find(Role::kDown), 2);
  const int64_t pairs = 8 * (64 + 32) + 8 * (176 + 64);
  EXPECT_EQ(spec.trained_count(), 2 * pairs);
  c.lora.rank = 0;
  const ModelSpec plain = hf::configured_model(c, 257).value();
  EXPECT_EQ(spec.parameter_count(), plain.parameter_count() + 2 * pairs);
  EXPECT_EQ(plain.trained_count(), plain.parameter_count());
  EXPECT_FALSE(plain.adapted());
  const double attention = 12.0 * 2 * 4 * 16 * 128;
  EXPECT_NEAR(spec.flops_per_token(128) - attention,
              4.0 / 6 * (plain.flops_per_token(128) - attention) + 6.0 * 2 * pairs, 1e-3);
}

TEST(Lora, Gpt2HasItsMatricesTheOtherWayRound) {
  DecoderShape shape;
  shape.gpt2 = true;
  shape.family = ModelFamily::kGpt2;
  shape.dim = 32;
  shape.n_layers = 1;
  shape.n_heads = shape.n_kv_heads = 4;
  shape.head_dim = 8;
  shape.ffn_dim = 96;
  shape.vocab_size = 100;
  shape.learned_positions = 16;
  const ModelSpec spec = create(shape, {4, 8, 0, {"c_attn", "c_proj"}});
  const std::vector<ParamSpec>& params = spec.adapters()[0].params;
  ASSERT_EQ(params.size(), 6u);  // c_proj is in attention and in the feed-forward
  EXPECT_EQ(params[0].shape, (std::vector<int64_t>{4, 32}));
  EXPECT_EQ(params[1].shape, (std::vector<int64_t>{96, 4}));
  EXPECT_EQ(params[4].shape, (std::vector<int64_t>{4, 96}));
  EXPECT_EQ(target_modules({}, shape), std::vector<std::string>{"c_attn"});
}

TEST(Lora, AllLinearIsEveryMatrixOfABlock) {
  Config c = small();
  c.lora.target_modules = {"all-linear"};
  const ModelSpec all = hf::configured_model(c, 257).value();
  size_t matrices = 0;
  for (const ParamSpec& param : all.units[1].params) matrices += param.decays() ? 1 : 0;
  EXPECT_EQ(matrices, 7u);
  EXPECT_EQ(all.adapters()[0].params.size(), 2 * matrices);
  DecoderShape gpt2;
  gpt2.gpt2 = true;
  EXPECT_EQ(target_modules(c.lora, gpt2), (std::vector<std::string>{"c_attn", "c_proj", "c_fc"}));
  c.lora.target_modules = {"all-linear", "q_proj"};  // a matrix of that name: there is none
  EXPECT_FALSE(hf::configured_model(c, 257).ok());
}

TEST(Lora, AModuleThatIsNotThereIsNamedWithThoseThatAre) {
  Config c = small();
  c.lora.target_modules = {"q_proj", "v_porj"};
  const auto spec = hf::configured_model(c, 257);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().code, Code::kConfig);
  for (const char* word : {"v_porj", "did you mean v_proj", "gate_proj"})
    EXPECT_NE(spec.error().message.find(word), std::string::npos) << spec.error().message;
  c = small();
  c.model.name = ModelFamily::kLinear;
  EXPECT_FALSE(hf::configured_model(c, 257).ok());
}

TEST(Lora, AWrapPolicyJoinsNoFrozenUnitWithATrainedOne) {
  const ModelSpec spec = hf::configured_model(small(), 257).value();
  for (WrapPolicy policy : {WrapPolicy::kModuleWrap, WrapPolicy::kSizeBased, WrapPolicy::kNone}) {
    size_t parameters = 0;
    for (const WrappedUnit& run : wrap(spec, policy, 100'000)) {
      parameters += run.spec.params.size();
      for (const ParamSpec& param : run.spec.params)
        EXPECT_EQ(run.spec.frozen, param.name.find(".lora_") == std::string::npos) << param.name;
    }
    size_t all = 0;
    for (const UnitSpec& unit : spec.units) all += unit.params.size();
    EXPECT_EQ(parameters, all) << policy;
  }
  EXPECT_EQ(wrap(spec, WrapPolicy::kNone, 1).size(), 2u);
}

}  // namespace
}  // namespace lockstep::layout
