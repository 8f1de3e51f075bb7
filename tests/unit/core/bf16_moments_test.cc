// AdamW with moments in bf16: what rounding by chance does to a value, which bits it takes, and
// that a run has the same ones however it is spread.
#include <ATen/Parallel.h>
#include <cmath>
#include <iostream>
#include <limits>

#include "core/kernels/adamw_kernels.h"
#include "core/kernels/parallel.h"
#include "core/train/state_pieces.h"
#include "layout/memory_walk.h"
#include "tests/unit/core/strategy_grid.h"

namespace lockstep::core {
namespace {

constexpr int64_t kRunTile = layout::kTileElements;

float rounded(float value, uint32_t random) {
  return bf16_to_float(stochastic_bf16(value, random));
}

// Over all 2^16 draws the mean is the value itself, exactly: each is as likely as any other.
TEST(StochasticRounding, TheMeanOfAllDrawsIsTheValue) {
  for (const float value :
       {1.0f, -1.0f, 1.001f, -3.14159f, 1e-30f, 2.5e-39f, 1e-45f, -1e30f, 0.0f, 65535.9f}) {
    double sum = 0;
    int up = 0;
    const float down = rounded(value, 0), above = rounded(value, 0xffff);
    for (uint32_t random = 0; random < 0x10000; ++random) {
      const float got = rounded(value, random);
      ASSERT_TRUE(got == down || got == above) << value;
      sum += static_cast<double>(got);
      up += got != down;
    }
    EXPECT_EQ(sum / 0x10000, static_cast<double>(value));
    EXPECT_EQ(up, __builtin_bit_cast(uint32_t, value) & 0xffff);
    EXPECT_LE(std::abs(down), std::abs(value));
    EXPECT_EQ(rounded(value, 0xabcd0000), down) << "16 bits alone count";
  }
  EXPECT_TRUE(std::signbit(rounded(-0.0f, 0xffff)));
}

TEST(StochasticRounding, WhatIsNotFiniteStaysAndNothingBecomesSo) {
  const float most = bf16_to_float(0x7f7f), infinity = std::numeric_limits<float>::infinity();
  for (const uint32_t random : {0u, 1u, 0x8000u, 0xffffu}) {
    EXPECT_EQ(rounded(std::numeric_limits<float>::max(), random), most);
    EXPECT_EQ(rounded(std::numeric_limits<float>::lowest(), random), -most);
    EXPECT_EQ(rounded(infinity, random), infinity);
    EXPECT_EQ(rounded(-infinity, random), -infinity);
    for (const uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
      EXPECT_TRUE(std::isnan(rounded(__builtin_bit_cast(float, nan), random)));
      EXPECT_EQ(stochastic_bf16(__builtin_bit_cast(float, nan), random) >> 15, nan >> 31);
    }
  }
}

struct Moments {
  std::vector<float> grad, master, m_wide, v_wide;
  std::vector<Bf16> m, v;

  explicit Moments(int64_t n) {
    const auto value = [](uint64_t seed, int64_t i) {
      const uint64_t bits = mix64(seed * 1000003 + static_cast<uint64_t>(i));
      return static_cast<float>(static_cast<double>(bits >> 11) * 0x1p-53 - 0.5);
    };
    for (int64_t i = 0; i < n; ++i) {
      grad.push_back(value(1, i));
      master.push_back(value(2, i));
      m.push_back({float_to_bf16(value(3, i) * 0.01f)});
      v.push_back({float_to_bf16(value(4, i) * value(4, i) * 1e-4f)});
      m_wide.push_back(bf16_to_float(m.back().bits));
      v_wide.push_back(bf16_to_float(v.back().bits));
    }
  }
  void update(const AdamWStep& step, const MomentDraw& draw, int64_t at, int64_t n) {
    const AdamWRun<Bf16> run{grad.data() + at,
                             master.data() + at,
                             m.data() + at,
                             v.data() + at,
                             nullptr,
                             n,
                             {draw.key, draw.first + at},
                             true};
    adamw_update<OnCpu>(step, std::span(&run, 1));
  }
  std::vector<uint16_t> bits() const {
    std::vector<uint16_t> all;
    for (const auto* of : {&m, &v})
      for (const Bf16 one : *of) all.push_back(one.bits);
    return all;
  }
};

const AdamWStep kStep = AdamWStep::create(1e-3, 0.9, 0.95, 1e-8, 0.1, 0.37, 7);

// The weights are those of fp32 moments; what is kept is rounded by the words that the header says.
TEST(Bf16Moments, AreThoseOfFp32RoundedByTheWordsOfTheirPlaces) {
  constexpr int64_t kCount = 3 * kRunTile + 77, kFirst = 5 * kRunTile;
  Moments got(kCount), want(kCount);
  got.update(kStep, {99, kFirst}, 0, kCount);
  const AdamWRun<float> run{want.grad.data(),
                            want.master.data(),
                            want.m_wide.data(),
                            want.v_wide.data(),
                            nullptr,
                            kCount,
                            {},
                            true};
  adamw_update<OnCpu>(kStep, std::span(&run, 1));
  EXPECT_EQ(got.master, want.master);
  for (int64_t i = 0; i < kCount; ++i) {
    const int64_t e = kFirst + i;
    const uint32_t word =
        philox(99, 7, static_cast<uint64_t>(e / 64 * 16 + e % 16)).word[e % 64 / 16];
    const auto at = static_cast<size_t>(i);
    ASSERT_EQ(got.m[at].bits, stochastic_bf16(want.m_wide[at], word & 0xffff)) << i;
    ASSERT_EQ(got.v[at].bits, stochastic_bf16(want.v_wide[at], word >> 16)) << i;
  }
}

TEST(Bf16Moments, TheSameBitsAtAnyCutAndOnAnyNumberOfThreads) {
  constexpr int64_t kCount = 40 * kRunTile;
  Moments whole(kCount);
  whole.update(kStep, {1, 0}, 0, kCount);
  for (const int64_t cut : {kMomentRun, 3 * kMomentRun, kRunTile, 7 * kRunTile}) {
    Moments parts(kCount);
    for (int64_t at = 0; at < kCount; at += cut)
      parts.update(kStep, {1, 0}, at, std::min(cut, kCount - at));
    EXPECT_EQ(parts.bits(), whole.bits()) << cut;
    EXPECT_EQ(parts.master, whole.master);
  }
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    Moments again(kCount);
    again.update(kStep, {1, 0}, 0, kCount);
    EXPECT_EQ(again.bits(), whole.bits()) << threads;
  }
  at::set_num_threads(1);
}

TEST(Bf16Moments, AnotherKeyOrStepOrPlaceRoundsOtherwise) {
  constexpr int64_t kCount = kRunTile;
  const auto bits = [](const AdamWStep& step, MomentDraw draw) {
    Moments moments(kCount);
    moments.update(step, draw, 0, kCount);
    return moments.bits();
  };
  const auto first = bits(kStep, {1, 0});
  AdamWStep next = kStep;  // all alike but the draws
  next.t = 8;
  EXPECT_NE(bits(kStep, {2, 0}), first);
  EXPECT_NE(bits(next, {1, 0}), first);
  EXPECT_NE(bits(kStep, {1, kRunTile}), first);
}

// A second moment that should grow by less than half a step of bf16 stays where it is when it is
// rounded to nearest; by chance it grows as fp32's does, on average over the elements.
TEST(Bf16Moments, GrowWhereRoundingToNearestWouldStandStill) {
  constexpr int64_t kSteps = 2000;
  Moments moments(kRunTile);
  std::fill(moments.grad.begin(), moments.grad.end(), 1.0f);
  std::fill(moments.m.begin(), moments.m.end(), Bf16{0});
  std::fill(moments.v.begin(), moments.v.end(), Bf16{0});
  float wide = 0, nearest = 0;
  for (int64_t t = 1; t <= kSteps; ++t) {
    moments.update(AdamWStep::create(1e-3, 0.9, 0.999, 1e-8, 0, 1, t), {5, 0}, 0, kRunTile);
    wide = 0.999f * wide + 0.001f;
    nearest = bf16_to_float(float_to_bf16(0.999f * nearest + 0.001f));
  }
  double sum = 0;
  for (const Bf16 one : moments.v) sum += static_cast<double>(bf16_to_float(one.bits));
  EXPECT_NEAR(wide, 0.865, 0.001);
  EXPECT_NEAR(sum / kRunTile, static_cast<double>(wide), 0.001);
  EXPECT_LT(nearest, 0.3f);
}

void in_bf16(Config& config) { config.optimizer.state_dtype = FloatType::kBfloat16; }

TEST(Bf16Moments, EveryStrategyAndWorldSizeGivesTheSameBits) {
  check_settings(spreads_with_defaults(5), 4, in_bf16);
}

TEST(Bf16Moments, ASampleOfAllCombinationsGivesTheSameBits) {
  check_settings(sample_of_settings(20261126, 30), 4, in_bf16);
}

TEST(Bf16Moments, AdaptersHaveThemToo) {
  std::vector<Setting> settings;
  for (const int w : {2, 3}) settings.push_back({.world_size = w, .bf16 = true});
  check_settings(settings, 4, [](Config& c) {
    in_bf16(c);
    c.lora.rank = 4;
  });
}

TEST(Bf16Moments, TheFirstUpdateIsFp32sAndTheSecondIsNot) {
  const Setting setting{.strategy = ShardingStrategy::kSingle};
  Config config = setting.config();
  const Curve wide = train(setting, 3, config);
  in_bf16(config);
  const Curve narrow = train(setting, 3, config);
  EXPECT_EQ(narrow.steps[1], wide.steps[1]);  // of weights that fp32 moments moved
  EXPECT_NE(narrow.steps[2], wide.steps[2]);
}

// What a rank holds is what the plan counts, and what a checkpoint takes.
TEST(Bf16Moments, TakeHalfTheBytesOfMomentsAsThePlanSays) {
  for (const int world_size : {1, 2, 3}) {
    const Setting setting{.world_size = world_size};
    Config config = setting.config();
    in_bf16(config);
    const layout::ModelSpec spec = hf::configured_model(config, 40).value();
    train(setting, 1, config, at::kCPU, [&](int rank, TrainingStep& model, const Groups&) {
      int64_t moments = 0, weights = 0, written = 0, elements = 0;
      for (auto& unit : model.units()) {
        moments += static_cast<int64_t>(unit->state.adam_m_S.nbytes()) +
                   static_cast<int64_t>(unit->state.adam_v_A.nbytes());
        weights += static_cast<int64_t>(unit->state.master_S.nbytes());
      }
      EXPECT_EQ(moments, weights);
      const auto live = LiveState::of(model.units());
      for (const checkpoint::LivePiece& piece : live->layout()) {
        written += static_cast<int64_t>(piece.bytes.size());
        if (piece.piece.kind == checkpoint::Kind::kParam) elements += piece.piece.length;
      }
      EXPECT_EQ(written, 8 * elements);
      if (rank > 0) return;
      const auto ledger = layout::walk_training(config, spec, {world_size});
      EXPECT_EQ(ledger.peak()[static_cast<size_t>(layout::MemoryUse::kOptimizer)], moments);
    });
  }
}

}  // namespace
}  // namespace lockstep::core
