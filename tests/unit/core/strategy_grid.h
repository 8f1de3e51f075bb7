// The grid of settings that must all give one curve.
#pragma once

#include <algorithm>
#include <functional>
#include <iostream>
#include <random>

#include "tests/support/seed.h"
#include "tests/unit/core/strategies.h"

namespace lockstep::core {

// A mixture of experts that config.json describes, of the sizes of Setting::config.
inline constexpr const char* kExperts = R"({
  "model_type": "mixtral", "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 40, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "tie_word_embeddings": true, "num_local_experts": 4,
  "output_router_logits": true, "router_aux_loss_coef": 0.1})";

// Every strategy, and on how many ranks.
inline std::vector<std::pair<ShardingStrategy, int>> every_spread() {
  std::vector<std::pair<ShardingStrategy, int>> spreads{{ShardingStrategy::kSingle, 1}};
  for (ShardingStrategy strategy : {ShardingStrategy::kDdp, ShardingStrategy::kFullShard,
                                    ShardingStrategy::kShardGradOp, ShardingStrategy::kHybrid})
    for (int w = 1; w <= 5; ++w) spreads.emplace_back(strategy, w);
  return spreads;
}

// Each of them on `most_ranks` at most, in both precisions, all else as Setting has it; but single.
inline std::vector<Setting> spreads_with_defaults(int most_ranks) {
  std::vector<Setting> settings;
  for (bool bf16 : {false, true})
    for (const auto& [strategy, w] : every_spread())
      if (strategy != ShardingStrategy::kSingle && w <= most_ranks)
        settings.push_back({.strategy = strategy, .world_size = w, .bf16 = bf16});
  return settings;
}

inline std::vector<Setting> every_setting() {
  std::vector<Setting> all;
  for (const auto& [strategy, w] : every_spread())
    for (bool bf16 : {false, true})
      for (Recompute checkpointing : {Recompute::kNone, Recompute::kFull, Recompute::kSelective})
        for (bool offload : {false, true})
          for (bool forward : {false, true})
            for (BackwardPrefetch backward :
                 {BackwardPrefetch::kPre, BackwardPrefetch::kPost, BackwardPrefetch::kNone})
              for (WrapPolicy wrap :
                   {WrapPolicy::kModuleWrap, WrapPolicy::kSizeBased, WrapPolicy::kNone})
                for (const auto& [map, node] : {std::pair(SlotMapKind::kCyclic, 0),
                                                {SlotMapKind::kBlock, 0},
                                                {SlotMapKind::kCyclic, 2},
                                                {SlotMapKind::kBlock, 2},
                                                {SlotMapKind::kGroupBlock, 2}})
                  all.push_back({strategy, w, 2, bf16, offload, forward, checkpointing, backward,
                                 wrap, map, node});
  return all;
}

// So many of them; LOCKSTEP_SEED names others than `seed` does.
inline std::vector<Setting> sample_of_settings(uint64_t seed, size_t count) {
  std::mt19937 random(static_cast<unsigned>(test_support::seed_or(seed)));
  std::vector<Setting> all = every_setting();
  std::shuffle(all.begin(), all.end(), random);
  all.resize(count);
  return all;
}

// Each setting's curve is that of one rank alone with the defaults. `change`: of every config.
inline void check_settings(
    const std::vector<Setting>& settings, int64_t steps,
    const std::function<void(Config&)>& change = [](Config&) {}) {
  auto curve = [&](const Setting& setting) {
    Config config = setting.config();
    change(config);
    return train(setting, steps, config);
  };
  const Curve references[] = {curve({.strategy = ShardingStrategy::kSingle, .bf16 = false}),
                              curve({.strategy = ShardingStrategy::kSingle, .bf16 = true})};
  ASSERT_NE(references[0].steps, references[1].steps);
  ASSERT_NE(references[0].steps.front(), references[0].steps.back());
  size_t done = 0;
  for (const Setting& setting : settings) {
    const Curve got = curve(setting);
    EXPECT_EQ(got.steps, references[setting.bf16].steps) << setting.name();
    EXPECT_EQ(got.state, references[setting.bf16].state) << setting.name();
    if (++done % 100 == 0) std::cout << done << " of " << settings.size() << std::endl;
  }
}

}  // namespace lockstep::core
