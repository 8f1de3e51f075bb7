// The rules of muon_plan.h, by number, on models of a few numbers.
#include "layout/muon_plan.h"

#include <gmock/gmock.h>

#include <map>

#include "layout/wrap.h"
#include "tests/unit/layout/small_model.h"

namespace lockstep::layout {
namespace {

using testing::ElementsAre;

// Matrices of several tiles, and some of less than one.
ModelSpec model_of(int64_t layers) {
  DecoderShape shape;
  shape.dim = 48;
  shape.n_layers = layers;
  shape.n_heads = 4;
  shape.n_kv_heads = 2;
  shape.head_dim = 12;
  shape.ffn_dim = 200;
  shape.vocab_size = 300;
  return create(shape);
}

std::vector<MuonUnit> units_of(const std::vector<WrappedUnit>& wrapped, int w, int s) {
  std::vector<MuonUnit> units;
  for (const WrappedUnit& run : wrapped)
    units.push_back({&run.spec, ShardLayout::create(run.spec.tiles(), w, {s, s})});
  return units;
}

TEST(MuonPlan, TheMatricesOfBlocksAreMuons) {
  std::vector<std::string> names;
  for (const UnitSpec& unit : small_model(1).units)
    for (const ParamSpec& param : unit.params)
      if (is_muons(param)) names.push_back(param.name);
  EXPECT_THAT(
      names, ElementsAre(
                 "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
                 "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
                 "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight",
                 "model.layers.0.mlp.down_proj.weight"));
}

// Not the router; each expert's matrices by themselves; not what GPT-2 has beside its matrices.
TEST(MuonPlan, TheMatricesOfOtherModels) {
  DecoderShape experts = small_model(1).shape, gpt2 = experts;
  experts.family = ModelFamily::kMixtral;
  experts.experts = 4;
  experts.experts_per_token = 2;
  gpt2.family = ModelFamily::kGpt2;
  gpt2.gpt2 = true;
  gpt2.learned_positions = 16;
  const auto count = [](const DecoderShape& shape) {
    int64_t matrices = 0;
    for (const UnitSpec& unit : create(shape).units)
      for (const ParamSpec& param : unit.params) matrices += is_muons(param);
    return matrices;
  };
  EXPECT_EQ(count(experts), 4 + 3 * 4);
  EXPECT_EQ(count(gpt2), 4);
}

TEST(MuonPlan, WithoutItEveryUnitIsAWaveOfNothing) {
  const auto wrapped = wrap(model_of(2), WrapPolicy::kModuleWrap, 1);
  const auto waves = muon_waves(units_of(wrapped, 3, 3), /*muon=*/false, 0);
  ASSERT_EQ(waves.size(), wrapped.size());
  for (size_t i = 0; i < waves.size(); ++i) {
    EXPECT_EQ(waves[i].first_unit, i);
    EXPECT_EQ(waves[i].end_unit, i + 1);
    EXPECT_TRUE(waves[i].matrices.empty());
  }
}

// Rule 2. A block has seven matrices.
TEST(MuonPlan, WavesAreWholeUnitsWithEnoughMatricesForEachRank) {
  const auto wrapped = wrap(model_of(5), WrapPolicy::kModuleWrap, 1);
  const auto ends = [&](int w) {
    std::vector<size_t> all;
    size_t next = 0;
    for (const MuonWave& wave : muon_waves(units_of(wrapped, w, w), true, 0)) {
      EXPECT_EQ(wave.first_unit, next);
      all.push_back(next = wave.end_unit);
    }
    return all;
  };
  EXPECT_THAT(ends(1), ElementsAre(2, 3, 4, 5, 6, 7));  // embedding with block 0; then a block each
  EXPECT_THAT(ends(3), ElementsAre(3, 5, 7));           // 14 of 12; 14; 7 and the head
  EXPECT_THAT(ends(64), ElementsAre(7));
}

// Rule 3. No rank has more than one matrix' work above the mean.
TEST(MuonPlan, WorkIsSpreadEvenly) {
  const auto wrapped = wrap(model_of(24), WrapPolicy::kModuleWrap, 1);
  for (const int w : {2, 3, 8}) {
    for (const MuonWave& wave : muon_waves(units_of(wrapped, w, w), true, 0)) {
      std::vector<double> work(static_cast<size_t>(w), 0.0);
      double all = 0, largest = 0;
      for (const MuonMatrix& m : wave.matrices) {
        work[static_cast<size_t>(m.home)] += m.flops();
        all += m.flops();
        largest = std::max(largest, m.flops());
      }
      EXPECT_LE(*std::max_element(work.begin(), work.end()), all / w + largest) << w;
    }
  }
}

// Rule 4: what one rank sends is what the other receives, in this order; together the pieces are
// the matrices.
TEST(MuonPlan, PiecesOfAllRanksAreTheMatrices) {
  const ModelSpec model = model_of(3);
  for (const WrapPolicy policy : {WrapPolicy::kModuleWrap, WrapPolicy::kNone})
    for (const auto& [w, s] : {std::pair(1, 1), {2, 2}, {3, 1}, {4, 2}, {5, 5}, {6, 3}}) {
      const auto wrapped = wrap(model, policy, 1);
      std::vector<std::vector<MuonWave>> of_rank;
      for (int r = 0; r < w; ++r) of_rank.push_back(muon_waves(units_of(wrapped, w, s), true, r));
      for (size_t i = 0; i < of_rank[0].size(); ++i) {
        std::map<size_t, int64_t> covered;
        for (size_t from = 0; from < of_rank.size(); ++from)
          for (size_t home = 0; home < of_rank.size(); ++home) {
            const MuonWave &sender = of_rank[from][i], &receiver = of_rank[home][i];
            ASSERT_EQ(sender.own.counts[home], receiver.at_home.counts[from]);
            std::vector<MuonPiece> sent, received;
            for (const MuonPiece& p : sender.own.pieces)
              if (sender.matrices[p.matrix].home == static_cast<int>(home)) sent.push_back(p);
            int64_t begin = 0;
            for (size_t r = 0; r < from; ++r) begin += receiver.at_home.counts[r];
            for (const MuonPiece& p : receiver.at_home.pieces)
              if (p.offset >= begin && p.offset < begin + receiver.at_home.counts[from])
                received.push_back(p);
            ASSERT_EQ(sent.size(), received.size());
            for (size_t k = 0; k < sent.size(); ++k) {
              EXPECT_EQ(sent[k].matrix, received[k].matrix);
              EXPECT_EQ(sent[k].flat_start, received[k].flat_start);
              EXPECT_EQ(sent[k].length, received[k].length);
              EXPECT_EQ(sent[k].offset - sent[0].offset, received[k].offset - begin);
              covered[sent[k].matrix] += sent[k].length;
            }
          }
        ASSERT_EQ(covered.size(), of_rank[0][i].matrices.size());
        for (const auto& [matrix, elements] : covered)
          EXPECT_EQ(elements, of_rank[0][i].matrices[matrix].elements());
      }
    }
}

TEST(MuonPlan, ElementsOfSegmentsAreWholeTiles) {
  const ModelSpec model = model_of(1);
  const UnitSpec& block = model.units[1];
  int64_t tiles = 0;
  for (const ParamSpec& param : block.params) tiles += is_muons(param) ? param.tiles() : 0;
  EXPECT_EQ(muon_elements(block, segments_of(block, 0, block.tiles())), tiles * kTileElements);
  EXPECT_EQ(muon_elements(block, segments_of(block, 0, 0)), 0);
}

}  // namespace
}  // namespace lockstep::layout
