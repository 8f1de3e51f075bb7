// The grid of settings that must all give one curve.
#pragma once

#include <functional>
#include <iostream>

#include "tests/unit/core/strategies.h"

namespace lockstep::core {

// Every strategy, and on how many ranks.
inline std::vector<std::pair<std::string, int>> every_spread() {
  std::vector<std::pair<std::string, int>> spreads{{"single", 1}};
  for (const char* strategy : {"ddp", "full_shard", "shard_grad_op", "hybrid"})
    for (int w = 1; w <= 5; ++w) spreads.emplace_back(strategy, w);
  return spreads;
}

inline std::vector<Setting> every_setting() {
  std::vector<Setting> all;
  for (const auto& [strategy, w] : every_spread())
    for (bool bf16 : {false, true})
      for (const char* checkpointing : {"none", "full", "selective"})
        for (bool offload : {false, true})
          for (bool forward : {false, true})
            for (const char* backward : {"BACKWARD_PRE", "BACKWARD_POST", "NONE"})
              for (const char* wrap : {"module_wrap", "size_based", "none"})
                for (const char* map : {"cyclic", "block"})
                  all.push_back(
                      {strategy, w, 2, bf16, offload, forward, checkpointing, backward, wrap, map});
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
  const Curve references[] = {curve({.strategy = "single", .bf16 = false}),
                              curve({.strategy = "single", .bf16 = true})};
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
