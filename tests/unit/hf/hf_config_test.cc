#include "hf/hf_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/json.h"

namespace lockstep::hf {
namespace {

using namespace layout;

using nlohmann::json;

json llama() {
  return {{"model_type", "llama"},    {"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 64},        {"num_hidden_layers", 3},
          {"num_attention_heads", 4}, {"intermediate_size", 112},
          {"vocab_size", 300},        {"rms_norm_eps", 1e-5}};
}
json with(json config, const json& more) {
  config.update(more);
  return config;
}
json gpt2() {
  return {{"model_type", "gpt2"}, {"n_embd", 64},      {"n_layer", 2}, {"n_head", 4},
          {"n_positions", 128},   {"vocab_size", 300}, {"n_ctx", 128}};
}
json gemma(const char* type) {
  return {{"model_type", type},
          {"hidden_size", 64},
          {"num_hidden_layers", 7},
          {"num_attention_heads", 4},
          {"intermediate_size", 96},
          {"vocab_size", 300},
          {"hidden_activation", "gelu_pytorch_tanh"}};
}
DecoderShape shape_of(const json& config) {
  const auto parsed = parse_hf_config(config.dump(), "config.json");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return parsed.ok() ? parsed.value().shape : DecoderShape{};
}
void expect_refused(const json& config, std::initializer_list<const char*> words) {
  const auto parsed = parse_hf_config(config.dump(), "config.json");
  ASSERT_FALSE(parsed.ok()) << config.dump();
  EXPECT_EQ(parsed.error().code, Code::kConfig);
  for (const char* word : words)
    EXPECT_NE(parsed.error().message.find(word), std::string::npos) << parsed.error().message;
}

TEST(HfConfig, AbsentFieldsHaveTheFamilysDefaults) {
  const DecoderShape l = shape_of(llama());
  EXPECT_EQ(l.n_kv_heads, 4);
  EXPECT_EQ(l.head_dim, 16);
  EXPECT_EQ(l.rope_theta, 10000.0);
  EXPECT_FALSE(l.tied || l.qkv_bias || l.mlp_bias || l.qk_norm);
  const DecoderShape m =
      shape_of(with(llama(), {{"model_type", "mistral"}, {"num_attention_heads", 16}}));
  EXPECT_EQ(m.n_kv_heads, 8);
  EXPECT_EQ(m.window(0), 4096);
  EXPECT_EQ(shape_of(with(llama(), {{"model_type", "mistral"},
                                    {"num_attention_heads", 16},
                                    {"sliding_window", nullptr}}))
                .window(0),
            0);
  const DecoderShape q3 = shape_of(with(llama(), {{"model_type", "qwen3"}}));
  EXPECT_TRUE(q3.qk_norm);
  EXPECT_EQ(q3.head_dim, 128);
  const DecoderShape q2 = shape_of(with(llama(), {{"model_type", "qwen2"}}));
  EXPECT_TRUE(q2.qkv_bias);
  EXPECT_FALSE(q2.o_bias);
  const DecoderShape g = shape_of(gpt2());
  EXPECT_TRUE(g.tied && g.gpt2 && g.qkv_bias && g.o_bias && g.mlp_bias);
  EXPECT_EQ(g.ffn_dim, 256);
  EXPECT_EQ(g.learned_positions, 128);
}

TEST(HfConfig, BothSpellingsOfRopeAreRead) {
  const json scaling{{"factor", 32.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 8192}};
  const DecoderShape older =
      shape_of(with(llama(), {{"rope_theta", 500000.0},
                              {"rope_scaling", with(scaling, {{"rope_type", "llama3"}})}}));
  const DecoderShape oldest = shape_of(with(
      llama(), {{"rope_theta", 500000}, {"rope_scaling", with(scaling, {{"type", "llama3"}})}}));
  const DecoderShape newer = shape_of(with(
      llama(),
      {{"rope_parameters", with(scaling, {{"rope_type", "llama3"}, {"rope_theta", 500000.0}})}}));
  for (const DecoderShape& s : {older, oldest, newer}) {
    EXPECT_EQ(s.rope_theta, 500000.0);
    EXPECT_EQ(architecture_text(s), architecture_text(newer));
    EXPECT_EQ(s.rope_scaling.factor, 32.0);
    EXPECT_EQ(s.rope_scaling.original_positions, 8192.0);
  }
  EXPECT_EQ(shape_of(with(llama(), {{"rope_scaling", nullptr}})).rope_scaling.factor, 0.0);
}

std::vector<std::string> warnings_of(const json& config,
                                     const std::vector<std::string>& ignored = {}) {
  const auto parsed = parse_hf_config(config.dump(), "config.json", ignored);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return parsed.ok() ? parsed.value().warnings : std::vector<std::string>();
}

// What transformers 5.23 makes of each, and 4.49, which knows no rope_parameters.
TEST(HfConfig, RopeScalingNextToRopeParametersIsTakenAndSaid) {
  const json yarn{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  const json parameters{{"rope_type", "default"}, {"rope_theta", 5e5}};
  const json both = with(llama(), {{"rope_scaling", yarn}, {"rope_parameters", parameters}});
  EXPECT_EQ(shape_of(both).rope_scaling.type, RopeType::kYarn);
  EXPECT_EQ(shape_of(both).rope_theta, 1e4) << "the base is not that of rope_parameters";
  EXPECT_EQ(
      shape_of(with(both, {{"model_type", "mixtral"}, {"num_key_value_heads", 4}})).rope_theta,
      1e6);
  EXPECT_EQ(shape_of(with(both, {{"rope_theta", 7e5}})).rope_theta, 7e5);
  EXPECT_EQ(shape_of(with(both, {{"rope_scaling", with(yarn, {{"rope_theta", 3e5}})}})).rope_theta,
            3e5);
  ASSERT_EQ(warnings_of(both).size(), 1u);
  for (const char* words : {"rope_scaling = {", "is taken, with base 10000", "rope_parameters = {"})
    EXPECT_NE(warnings_of(both)[0].find(words), std::string::npos) << warnings_of(both)[0];
  // An empty object is none; two that say the same need no word.
  const DecoderShape empty = shape_of(with(both, {{"rope_scaling", json::object()}}));
  EXPECT_EQ(empty.rope_scaling.type, RopeType::kDefault);
  EXPECT_EQ(empty.rope_theta, 5e5);
  EXPECT_TRUE(warnings_of(with(llama(), {{"rope_theta", 5e5},
                                         {"rope_scaling", yarn},
                                         {"rope_parameters", with(yarn, {{"rope_theta", 5e5}})}}))
                  .empty());
  expect_refused(with(gemma("gemma3_text"),
                      {{"rope_scaling", yarn}, {"rope_parameters", {{"full_attention", yarn}}}}),
                 {"rope_scaling", "rope_parameters", "take one of them out"});
}

TEST(HfConfig, FieldsOfRopeThatContradictEachOtherAreSaid) {
  const json config = with(
      llama(),
      {{"rope_theta", 7e5},
       {"max_position_embeddings", 64},
       {"rope_parameters",
        {{"type", "linear"}, {"rope_type", "dynamic"}, {"factor", 2.0}, {"rope_theta", 5e5}}}});
  EXPECT_EQ(shape_of(config).rope_theta, 5e5);
  EXPECT_EQ(shape_of(config).rope_scaling.type, RopeType::kDynamic);
  const auto said = warnings_of(config);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said[0].find("rope_theta = 700000.0 is passed over"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("type = \"linear\" is passed over"), std::string::npos) << said[1];
}

TEST(HfConfig, TwoNamesOfOneSizeThatDisagreeAreRefused) {
  expect_refused(
      with(llama(), {{"model_type", "mixtral"}, {"num_local_experts", 4}, {"num_experts", 8}}),
      {"num_experts = 8", "num_local_experts = 4"});
  expect_refused(with(gpt2(), {{"max_position_embeddings", 64}}),
                 {"n_positions = 128", "max_position_embeddings = 64"});
  json renamed = gpt2();
  renamed.erase("n_positions");
  EXPECT_EQ(shape_of(with(renamed, {{"max_position_embeddings", 64}})).learned_positions, 64);
  EXPECT_EQ(shape_of(with(llama(), {{"model_type", "mistral"}, {"num_key_value_heads", nullptr}}))
                .n_kv_heads,
            4);
}

TEST(HfConfig, FieldsThatChangeNoArithmeticArePassedOverWithOneNote) {
  const json odd{{"is_llama_config", true},
                 {"unsloth_fixed", true},
                 {"unsloth_version", "2025.1.1"},
                 {"attn_implementation", "flash_attention_2"},
                 {"_attn_implementation_internal", "sdpa"},
                 {"transformers.js_config", {{"kv_cache_dtype", {{"q4f16", "float16"}}}}},
                 {"_flash_attn_2_enabled", true},
                 {"rope_interleaved", false},
                 {"max_sequence_length", 2048},
                 {"_num_labels", 1},
                 {"pretraining_tp", 1},
                 {"use_sliding_window", false},
                 {"quantization_config", nullptr}};
  EXPECT_EQ(architecture_text(shape_of(with(llama(), odd))), architecture_text(shape_of(llama())));
  EXPECT_EQ(warnings_of(with(llama(), odd)),
            (std::vector<std::string>{
                "config.json: passed over, for they change no arithmetic: _flash_attn_2_enabled, "
                "_num_labels, attn_implementation, is_llama_config, max_sequence_length, "
                "transformers.js_config, unsloth_fixed, unsloth_version"}));
  EXPECT_TRUE(warnings_of(with(llama(), {{"use_cache", true}, {"pretraining_tp", 1}})).empty());
  EXPECT_EQ(warnings_of(with(llama(), {{"pretraining_tp", 2}})).size(), 1u);
  for (const char* name : {"rope_interleaved", "use_sliding_window", "use_qk_norm"})
    expect_refused(with(llama(), {{name, true}}), {name});
}

TEST(HfConfig, TheUserSaysWhichOtherFieldsChangeNoArithmetic) {
  const json config = with(llama(), {{"my_note", 7}, {"my_date", "today"}, {"use_cache", true}});
  expect_refused(config, {"my_note = 7", "my_date = \"today\"",
                          "--model.ignore_fields my_date,my_note passes over them"});
  const auto said = warnings_of(config, {"my_note", "my_date"});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("my_date, my_note"), std::string::npos) << said[0];
  const auto read =
      parse_hf_config(config.dump(), "config.json", {"my_note", "my_date", "hidden_size"});
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("hidden_size"), std::string::npos) << read.error().message;
}

TEST(HfConfig, TheTypesOfLongerSequencesAreRead) {
  const auto scaling_of = [](const json& rope) {
    return shape_of(with(llama(), {{"max_position_embeddings", 4096}, {"rope_scaling", rope}}))
        .rope_scaling;
  };
  const RopeScaling linear = scaling_of({{"type", "linear"}, {"factor", 8.0}});
  EXPECT_EQ(linear.type, RopeType::kLinear);
  EXPECT_EQ(linear.factor, 8.0);
  const RopeScaling dynamic = scaling_of({{"rope_type", "dynamic"}, {"factor", 2.0}});
  EXPECT_EQ(dynamic.type, RopeType::kDynamic);
  EXPECT_EQ(dynamic.original_positions, 4096.0);
  const json yarn{{"rope_type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(scaling_of(yarn).type, RopeType::kYarn);
  EXPECT_EQ(scaling_of(yarn).original_positions, 4096.0);
  EXPECT_EQ(scaling_of(yarn).beta_fast, 32.0);
  EXPECT_TRUE(scaling_of(yarn).truncate);
  EXPECT_NEAR(scaling_of(yarn).attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-15);
  EXPECT_EQ(scaling_of(with(yarn, {{"attention_factor", 1.5}})).attention_factor, 1.5);
  EXPECT_NEAR(scaling_of(with(yarn, {{"mscale", 0.5}, {"mscale_all_dim", 2.0}})).attention_factor,
              (0.05 * std::log(4.0) + 1.0) / (0.2 * std::log(4.0) + 1.0), 1e-15);
  // DeepSeek's: the factor is a quotient of lengths.
  const json quotient{{"rope_type", "yarn"}, {"original_max_position_embeddings", 1024}};
  EXPECT_EQ(scaling_of(quotient).factor, 4.0);
}

TEST(HfConfig, WrongFieldsOfRopeAreNamed) {
  const auto refused = [](const json& rope, std::initializer_list<const char*> words) {
    expect_refused(with(llama(), {{"rope_scaling", rope}}), words);
  };
  refused({{"rope_type", "linear"}}, {"factor", "missing"});
  refused({{"rope_type", "dynamic"}, {"factor", 2.0}}, {"max_position_embeddings", "missing"});
  refused({{"rope_type", "linear"}, {"factor", 2.0}, {"beta_fast", 32}}, {"beta_fast"});
  const json yarn{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  refused(with(yarn, {{"beta_fast", 1}, {"beta_slow", 2}}), {"beta_fast", "beta_slow"});
  refused(with(yarn, {{"truncate", 1}}), {"truncate"});
}

TEST(HfConfig, TheIdentityKnowsTheRopeType) {
  const auto identity = [](RopeScaling scaling) {
    DecoderShape shape;
    shape.rope_scaling = scaling;
    return architecture_text(shape);
  };
  std::set<std::string> all;
  for (RopeType type : {RopeType::kDefault, RopeType::kLinear, RopeType::kDynamic, RopeType::kYarn})
    all.insert(identity({.type = type, .factor = 2}));
  all.insert(identity({.type = RopeType::kYarn, .factor = 2, .truncate = false}));
  EXPECT_EQ(all.size(), 5u);
}

TEST(HfConfig, QwenWindowsFollowLayerTypesElseMaxWindowLayers) {
  const json qwen = with(llama(), {{"model_type", "qwen2"}, {"sliding_window", 32}});
  EXPECT_TRUE(shape_of(qwen).windows.empty());
  const DecoderShape late =
      shape_of(with(qwen, {{"use_sliding_window", true}, {"max_window_layers", 2}}));
  EXPECT_EQ(late.windows, (std::vector<int64_t>{0, 0, 32}));
  const json types = {"sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(shape_of(with(qwen, {{"use_sliding_window", true}, {"layer_types", types}})).windows,
            (std::vector<int64_t>{32, 0, 32}));
  expect_refused(with(qwen, {{"layer_types", types}}), {"layer_types", "use_sliding_window"});
  expect_refused(with(qwen, {{"use_sliding_window", true}, {"layer_types", {"full_attention"}}}),
                 {"layer_types"});
}

TEST(HfConfig, Gemma2HasCapsAndEverySecondLayerAWindow) {
  const DecoderShape g = shape_of(gemma("gemma2"));
  EXPECT_TRUE(g.tied && g.unit_offset_norms && g.post_norms && g.geglu && !g.qk_norm);
  EXPECT_EQ(g.n_kv_heads, 4);
  EXPECT_EQ(g.head_dim, 256);
  EXPECT_EQ(g.embedding_scale, 8.0);
  EXPECT_EQ(g.query_scalar, 256.0);
  EXPECT_EQ(g.score_cap, 50.0);
  EXPECT_EQ(g.logit_cap, 30.0);
  EXPECT_EQ(g.local_rope_theta, 0.0);
  EXPECT_EQ(g.windows, (std::vector<int64_t>{4096, 0, 4096, 0, 4096, 0, 4096}));
  const DecoderShape without = shape_of(with(
      gemma("gemma2"), {{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", 5.5}}));
  EXPECT_EQ(without.score_cap, 0.0);
  EXPECT_EQ(without.logit_cap, 5.5);
  expect_refused(with(gemma("gemma2"), {{"hidden_activation", "gelu"}}), {"hidden_activation"});
  expect_refused(with(gemma("gemma2"), {{"use_bidirectional_attention", true}}),
                 {"use_bidirectional_attention"});
}

TEST(HfConfig, Gemma3HasTwoBasesAndEverySixthLayerNoWindow) {
  const json older =
      with(gemma("gemma3_text"), {{"sliding_window", 32},
                                  {"sliding_window_pattern", 6},
                                  {"rope_theta", 1e6},
                                  {"rope_local_base_freq", 1e4},
                                  {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                                  {"attn_logit_softcapping", nullptr}});
  const json newer =
      with(gemma("gemma3_text"),
           {{"sliding_window", 32},
            {"rope_parameters",
             {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}}}});
  for (const json& config : {older, newer}) {
    const DecoderShape g = shape_of(config);
    EXPECT_TRUE(g.qk_norm);
    EXPECT_EQ(g.windows, (std::vector<int64_t>{32, 32, 32, 32, 32, 0, 32}));
    EXPECT_EQ(g.rope_theta, 1e6);
    EXPECT_EQ(g.local_rope_theta, 1e4);
    EXPECT_EQ(g.rope_scaling.type, RopeType::kLinear);
    EXPECT_EQ(g.score_cap, 0.0);
    EXPECT_EQ(g.logit_cap, 0.0);
  }
  EXPECT_EQ(shape_of(gemma("gemma3_text")).rope_theta, 1e6);
  json scaled = newer;
  scaled["rope_parameters"]["sliding_attention"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  expect_refused(scaled, {"sliding_attention", "must not have scaling"});
  json another = newer;
  another["rope_parameters"]["chunked_attention"] = json::object();
  expect_refused(another, {"chunked_attention"});
  expect_refused(with(newer, {{"attn_logit_softcapping", 50.0}}), {"attn_logit_softcapping"});
  expect_refused(with(newer, {{"model_type", "gemma3"}}), {"gemma3", "text_config"});
}

TEST(HfConfig, TheIdentityKnowsWhatGemmaHas) {
  std::set<std::string> all{architecture_text(shape_of(gemma("gemma2"))),
                            architecture_text(shape_of(gemma("gemma3_text")))};
  for (const json& change :
       {json{{"final_logit_softcapping", 7.0}}, json{{"attn_logit_softcapping", 7.0}},
        json{{"query_pre_attn_scalar", 7}}})
    all.insert(architecture_text(shape_of(with(gemma("gemma2"), change))));
  all.insert(
      architecture_text(shape_of(with(gemma("gemma3_text"), {{"rope_local_base_freq", 500.0}}))));
  EXPECT_EQ(all.size(), 6u);
  EXPECT_EQ(architecture_text(DecoderShape{}).find("gemma"), std::string::npos);
}

TEST(HfConfig, ExpertsAreRead) {
  const DecoderShape m = shape_of(with(llama(), {{"model_type", "mixtral"},
                                                 {"num_attention_heads", 16},
                                                 {"sliding_window", nullptr},
                                                 {"router_jitter_noise", 0.0}}));
  EXPECT_EQ(m.experts, 8);
  EXPECT_EQ(m.experts_per_token, 2);
  EXPECT_EQ(m.ffn_dim, 112);
  EXPECT_EQ(m.rope_theta, 1e6);
  EXPECT_EQ(m.window(0), 0);
  EXPECT_TRUE(m.normed_routing && !m.qk_norm);
  EXPECT_EQ(m.balance_loss, 0.0) << "output_router_logits is false";
  const json qwen = with(llama(), {{"model_type", "qwen3_moe"},
                                   {"num_key_value_heads", 2},
                                   {"num_experts", 16},
                                   {"num_experts_per_tok", 4},
                                   {"moe_intermediate_size", 40},
                                   {"mlp_only_layers", json::array()},
                                   {"decoder_sparse_step", 1},
                                   {"sliding_window", 64},
                                   {"use_sliding_window", false}});
  const DecoderShape q = shape_of(qwen);
  EXPECT_EQ(q.experts, 16);
  EXPECT_EQ(q.experts_per_token, 4);
  EXPECT_EQ(q.ffn_dim, 40);
  EXPECT_TRUE(q.qk_norm && !q.normed_routing && q.windows.empty());
  const DecoderShape balanced =
      shape_of(with(qwen, {{"norm_topk_prob", true}, {"output_router_logits", true}}));
  EXPECT_TRUE(balanced.normed_routing);
  EXPECT_EQ(balanced.balance_loss, 0.001);
  EXPECT_NE(architecture_text(q), architecture_text(balanced));
  json renamed = qwen;
  renamed.erase("num_experts");
  renamed["num_local_experts"] = 8;  // as transformers 5 writes it
  EXPECT_EQ(shape_of(renamed).experts, 8);
  expect_refused(with(qwen, {{"mlp_only_layers", {0}}}), {"mlp_only_layers"});
  expect_refused(with(qwen, {{"decoder_sparse_step", 2}}), {"decoder_sparse_step"});
  expect_refused(with(qwen, {{"num_experts_per_tok", 17}}), {"num_experts_per_tok", "16"});
  expect_refused(with(qwen, {{"num_experts", 5000}}), {"num_experts", "4096"});
  expect_refused(with(llama(), {{"model_type", "mixtral"}, {"router_jitter_noise", 0.1}}),
                 {"router_jitter_noise"});
}

// 2^24 blocks took 20 GB before anything else was looked at.
TEST(HfConfig, BlocksAndExpertsAreLimited) {
  expect_refused(with(llama(), {{"num_hidden_layers", 4097}}),
                 {"num_hidden_layers = 4097", "from 1 to 4096"});
  expect_refused(with(gpt2(), {{"n_layer", 1 << 24}}), {"n_layer = 16777216", "from 1 to 4096"});
  const json mixtral = with(llama(), {{"model_type", "mixtral"}, {"num_local_experts", 4096}});
  EXPECT_EQ(shape_of(with(mixtral, {{"num_hidden_layers", 32}})).experts, 4096);
  expect_refused(with(mixtral, {{"num_hidden_layers", 33}}),
                 {"num_local_experts = 4096", "each of 33 layers", "at most 131072"});
}

TEST(HfConfig, AQwen2WithoutPositionsOfImagesIsRead) {
  const json qwen = with(llama(), {{"model_type", "qwen2"}});
  EXPECT_TRUE(shape_of(with(qwen, {{"use_mrope", false}})).qkv_bias);
  expect_refused(with(qwen, {{"use_mrope", true}}), {"use_mrope = true", "is not supported"});
}

TEST(HfConfig, WhatChangesTheArithmeticAndIsNotImplementedIsNamedWithItsValue) {
  expect_refused(with(llama(), {{"hidden_act", "gelu"}}), {"hidden_act", "gelu", "config.json"});
  expect_refused(with(llama(), {{"rope_scaling", {{"rope_type", "longrope"}, {"factor", 4.0}}}}),
                 {"rope_type", "longrope", "yarn and llama3"});
  expect_refused(with(llama(), {{"rope_parameters", {{"rope_type", "default"}, {"factor", 4.0}}}}),
                 {"unsupported", "factor", "4.0"});
  expect_refused(with(llama(), {{"partial_rotary_factor", 0.5}}), {"partial_rotary_factor", "0.5"});
  expect_refused(with(llama(), {{"num_experts", 8}}), {"unsupported", "num_experts", "8"});
  expect_refused(with(llama(), {{"quantization_config", {{"bits", 4}}}}), {"quantization_config"});
  expect_refused(with(llama(), {{"model_type", "mamba"}}), {"mamba", "qwen3"});
  expect_refused(with(gpt2(), {{"activation_function", "relu"}}), {"activation_function", "relu"});
  expect_refused(with(gpt2(), {{"scale_attn_by_inverse_layer_idx", true}}),
                 {"scale_attn_by_inverse_layer_idx", "true"});
  // Another family's field is not this one's.
  expect_refused(with(gpt2(), {{"sliding_window", 8}}), {"sliding_window"});
}

TEST(HfConfig, WrongAndMissingFieldsAreNamed) {
  json without = llama();
  without.erase("hidden_size");
  expect_refused(without, {"hidden_size", "missing"});
  expect_refused(with(llama(), {{"hidden_size", "64"}}), {"hidden_size"});
  expect_refused(with(llama(), {{"num_attention_heads", 5}}), {"num_attention_heads", "64"});
  expect_refused(with(llama(), {{"rms_norm_eps", -1}}), {"rms_norm_eps"});
  expect_refused(json::array(), {"not a JSON object"});
}

TEST(HfConfig, DropoutIsSaidAndLeftOut) {
  const auto parsed =
      parse_hf_config(with(gpt2(), {{"attn_pdrop", 0.1}, {"embd_pdrop", 0.0}}).dump(), "c");
  ASSERT_TRUE(parsed.ok());
  ASSERT_EQ(parsed.value().warnings.size(), 1u);
  EXPECT_NE(parsed.value().warnings[0].find("attn_pdrop = 0.1"), std::string::npos);
}

TEST(HfConfig, ASelfMadeConfigIsReadBack) {
  DecoderShape shape = shape_of(llama());
  shape.tied = true;
  shape.rope_theta = 1234.5;
  const auto read = parse_hf_config(hf_config_json(shape, FloatType::kBfloat16, 64), "c");
  ASSERT_TRUE(read.ok()) << read.error().message;
  Config::Model before, after;
  write_keys(shape, before);
  write_keys(read.value().shape, after);
  EXPECT_EQ(before.head_dim, after.head_dim);
  EXPECT_EQ(before.rope_theta, after.rope_theta);
  EXPECT_EQ(before.tie_word_embeddings, after.tie_word_embeddings);
  EXPECT_EQ(architecture_text(shape), architecture_text(read.value().shape));
}

TEST(ReadHfConfig, AHubName_SaysThatNothingIsDownloadedAndHowToGetTheFolder) {
  const auto hub = read_hf_config(posix_file_system(), "Qwen/Qwen3-0.6B");
  ASSERT_FALSE(hub.ok());
  EXPECT_EQ(hub.error().code, Code::kConfig);
  EXPECT_EQ(hub.error().message,
            "model.hf_assets_path = Qwen/Qwen3-0.6B: there is no such folder, and Lockstep "
            "downloads nothing; to get the folder of a model on the Hugging Face Hub, run: hf "
            "download Qwen/Qwen3-0.6B --local-dir Qwen/Qwen3-0.6B");
  for (const char* path : {"/nowhere/models", "./models", "nowhere", "a/b/c", "nowhere/"}) {
    const auto missing = read_hf_config(posix_file_system(), path);
    ASSERT_FALSE(missing.ok());
    EXPECT_NE(missing.error().message.find("downloads nothing; give a folder"), std::string::npos)
        << missing.error().message;
  }
}

}  // namespace
}  // namespace lockstep::hf
