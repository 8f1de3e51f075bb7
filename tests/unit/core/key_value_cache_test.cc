// Generation's forward: a token at a time with a cache against all of them at once, bit for bit;
// and against the trainer's own forward, whose products add in another order.
#include "core/sharding/key_value_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "core/kernels/matmul.h"
#include "tests/support/each_target.h"
#include "tests/unit/core/whole_model.h"

namespace lockstep::core {
namespace {

constexpr int64_t kTokens = 12, kVocab = 30;

std::vector<int64_t> some_tokens(int64_t seed = 7) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kTokens; ++i) ids.push_back((i * seed + 3) % kVocab);
  return ids;
}

at::Tensor as_tensor(const std::vector<int64_t>& ids) { return at::tensor(ids, at::kLong); }

class Generating {
 public:
  Generating(const layout::DecoderShape& shape, at::ScalarType compute)
      : model_(shape, options_of(compute, kTokens)), cache_(shape.n_layers) {}

  KeyValueCache& cache() { return cache_; }
  // The logits of the new tokens' rows.
  at::Tensor forward(const std::vector<NewTokens>& rows, const std::vector<int64_t>& tokens) {
    const RowByRow products;
    const at::Tensor positions = as_tensor(cache_.begin(rows));
    const at::Tensor x =
        model_.schedule->forward_only({as_tensor(tokens).view({1, -1}), positions, cache_}).value();
    return head(x);
  }
  // Of one new sequence, in pieces of so many tokens.
  at::Tensor in_pieces(const std::vector<int64_t>& ids, int64_t piece) {
    const int64_t sequence = cache_.add(kTokens);
    std::vector<at::Tensor> all;
    for (int64_t first = 0; first < std::ssize(ids); first += piece) {
      const int64_t count = std::min(piece, std::ssize(ids) - first);
      all.push_back(
          forward({{sequence, count}}, {ids.begin() + first, ids.begin() + first + count}));
    }
    cache_.drop(sequence);
    return at::cat(all);
  }
  at::Tensor as_the_trainer(const std::vector<int64_t>& ids) {
    const at::Tensor tokens = as_tensor(ids).view({1, -1});
    return head(model_.schedule->forward_only({tokens, tokens, 1.0}).value());
  }

 private:
  at::Tensor head(const at::Tensor& x) {
    std::vector<UnitPart> units;
    for (const int u : model_.stages.units.back().units)
      units.push_back(model_.parts[static_cast<size_t>(u)]);
    return logits_of(model_.spec, units, x).clone();
  }
  WholeModel model_;
  KeyValueCache cache_;
};

struct Family {
  const char* name;
  layout::DecoderShape shape;
};

// All that families differ in: whole_model.h's, and each kind of rotation.
std::vector<Family> all_families() {
  std::vector<Family> all;
  const char* const names[] = {"llama", "gpt2", "gemma", "experts", "everything"};
  for (size_t i = 0; const layout::DecoderShape& shape : families())
    all.push_back({names[i++], shape});
  layout::DecoderShape plain = families().front();
  layout::DecoderShape whole_window = plain, tied = plain, dense_experts = families()[3];
  whole_window.windows = {2, 2};
  tied.tied = true;
  dense_experts.normed_routing = false;
  dense_experts.tied = true;
  all.push_back({"windows in every layer", whole_window});
  all.push_back({"tied head", tied});
  all.push_back({"experts without normed routing", dense_experts});
  for (const auto& [name, type] : {std::pair("linear", layout::RopeType::kLinear),
                                   std::pair("dynamic", layout::RopeType::kDynamic),
                                   std::pair("yarn", layout::RopeType::kYarn),
                                   std::pair("llama3", layout::RopeType::kLlama3)}) {
    layout::DecoderShape shape = plain;
    shape.rope_scaling = {type, 4, 1, 4, 8};
    all.push_back({name, shape});
  }
  return all;
}

class CachedForward : public testing::TestWithParam<at::ScalarType> {};

TEST_P(CachedForward, ATokenAtATime_HasTheBitsOfAllAtOnce) {
  for (const Family& family : all_families()) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, family.name);
    Generating model(family.shape, GetParam());
    const at::Tensor whole = model.in_pieces(some_tokens(), kTokens);
    ASSERT_EQ(whole.size(0), kTokens);
    EXPECT_TRUE(at::equal(model.in_pieces(some_tokens(), 1), whole));
    EXPECT_TRUE(at::equal(model.in_pieces(some_tokens(), 5), whole));
  }
}

TEST_P(CachedForward, AmongOtherSequences_HasTheBitsOfOneAlone) {
  for (const Family& family : all_families()) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, family.name);
    Generating model(family.shape, GetParam());
    const auto mine = some_tokens(), other = some_tokens(11);
    const at::Tensor alone = model.in_pieces(mine, 1), others = model.in_pieces(other, 1);
    KeyValueCache& cache = model.cache();
    const int64_t a = cache.add(kTokens), b = cache.add(kTokens);
    // The other one is ahead, so that lengths differ.
    std::vector<at::Tensor> of_other{model.forward({{b, 3}}, {other.begin(), other.begin() + 3})};
    for (int64_t i = 0; i < kTokens - 3; ++i) {
      const at::Tensor both = model.forward(
          {{a, 1}, {b, 1}}, {mine[static_cast<size_t>(i)], other[static_cast<size_t>(i + 3)]});
      EXPECT_TRUE(at::equal(both[0], alone[i])) << i;
      of_other.push_back(both.narrow(0, 1, 1));
    }
    EXPECT_TRUE(at::equal(at::cat(of_other), others));
  }
}

// The reason for a bound: the trainer's products are a library's, which adds the terms of a sum in
// another order. In bf16 the trainer also rounds scores and probabilities.
TEST_P(CachedForward, StaysNearTheTrainersForward) {
  const double bound = GetParam() == at::kFloat ? 2e-6 : 0.03;
  for (const Family& family : all_families()) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, family.name);
    Generating model(family.shape, GetParam());
    const at::Tensor cached = model.in_pieces(some_tokens(), 1);
    const at::Tensor whole = model.as_the_trainer(some_tokens());
    const double largest = whole.abs().max().item<double>();
    EXPECT_LT(max_difference(cached, whole) / largest, bound);
    EXPECT_GT(largest, 0.1);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CachedForward, testing::Values(at::kFloat, at::kBFloat16));

TEST(CachedForward, Adapters_HaveTheBitsOfAllAtOnce) {
  DecoderOptions options = options_of(at::kFloat, kTokens);
  options.lora.rank = 3;
  options.lora.alpha = 6;
  WholeModel model(families().front(), options);
  KeyValueCache cache(2);
  const auto forward = [&](std::vector<NewTokens> rows, std::vector<int64_t> tokens) {
    const RowByRow products;
    const at::Tensor positions = as_tensor(cache.begin(rows));
    return model.schedule->forward_only({as_tensor(tokens).view({1, -1}), positions, cache})
        .value();
  };
  const std::vector<int64_t> ids = some_tokens();
  const at::Tensor whole = forward({{cache.add(kTokens), kTokens}}, ids);
  const int64_t sequence = cache.add(kTokens);
  for (int64_t i = 0; i < kTokens; ++i)
    EXPECT_TRUE(at::equal(forward({{sequence, 1}}, {ids[static_cast<size_t>(i)]})[0], whole[i]));
}

// Two key heads of 4 elements in 3 layers, fp32: 192 bytes a token.
TEST(KeyValueCache, Memory_GrowsWithTheTokensUpToWhatASequenceMayHold) {
  const AttentionShape shape{.heads = 2, .key_heads = 2, .head_dim = 4, .window = 0, .fused = true};
  KeyValueCache cache(3);
  const auto add = [&](int64_t sequence, int64_t count) {
    const NewTokens rows[] = {{sequence, count}};
    cache.begin(rows);
    for (int64_t layer = 0; layer < 3; ++layer)
      cache.attention(layer, shape, random_tensor({count, 6 * 4}, 1));
  };
  const int64_t a = cache.add(200), b = cache.add(70);
  EXPECT_EQ(cache.bytes(), 0);
  add(a, 1);
  EXPECT_EQ(cache.bytes(), 192 * 64);
  add(a, 63);
  EXPECT_EQ(cache.bytes(), 192 * 64);
  add(a, 1);
  EXPECT_EQ(cache.bytes(), 192 * 128);
  add(a, 135);
  EXPECT_EQ(cache.bytes(), 192 * 200);
  EXPECT_EQ(cache.length(a), 200);
  add(b, 65);
  EXPECT_EQ(cache.bytes(), 192 * 270);
  cache.drop(a);
  EXPECT_EQ(cache.bytes(), 192 * 70);
}

TEST(KeyValueCacheDeathTest, MoreThanASequenceMayHold_IsABug) {
  KeyValueCache cache(1);
  const NewTokens rows[] = {{cache.add(3), 4}};
  EXPECT_DEATH(cache.begin(rows), "at most 3");
}

TEST(RowByRow, AProductsRows_DoNotDependOnTheirNumberAndAreRight) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const int64_t inner : {1, 7, 16, 37, 128})
      for (const int64_t width : {1, 3, 4, 18, 66, 150}) {
        const at::Tensor a = random_tensor({21, inner}, 1).to(type);
        const at::Tensor by_columns = random_tensor({inner, width}, 2).to(type);
        const at::Tensor by_rows = by_columns.t().contiguous().t();
        for (const at::Tensor& b : {by_columns, by_rows}) {
          const RowByRow products;
          const at::Tensor whole = product(a, b);
          for (int64_t r = 0; r < 21; ++r)
            EXPECT_TRUE(at::equal(product(a.narrow(0, r, 1), b)[0], whole[r]));
          EXPECT_TRUE(at::equal(product(a.narrow(0, 2, 7), b), whole.narrow(0, 2, 7)));
          const at::Tensor right = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
          EXPECT_LT(max_difference(whole, right), type == at::kFloat ? 2e-5 : 0.2);
        }
      }
}

TEST(RowByRow, EveryInstructionSet_GivesTheSameBits) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor a = random_tensor({21, 75}, 1).to(type),
                     b = random_tensor({75, 93}, 2).to(type);
    const RowByRow products;
    for (const at::Tensor& factor : {b, b.t().contiguous().t()}) {
      const at::Tensor widest = product(a, factor);
      on_each_target([&] { EXPECT_TRUE(at::equal(product(a, factor), widest)); });
    }
  }
}

TEST(RowByRow, Threads_DoNotChangeABit) {
  const at::Tensor a = random_tensor({5, 300}, 1), b = random_tensor({701, 300}, 2).t();
  const RowByRow products;
  at::set_num_threads(1);
  const at::Tensor one = product(a, b);
  at::set_num_threads(3);
  const at::Tensor three = product(a, b);
  at::set_num_threads(1);
  EXPECT_TRUE(at::equal(one, three));
}

}  // namespace
}  // namespace lockstep::core
