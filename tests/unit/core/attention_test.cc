// Attention inside documents, against LibTorch's autograd in fp64 with the mask written out.
#include "core/kernels/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/text.h"
#include "core/kernels/kernel_table.h"
#include "tests/unit/core/whole_model.h"

namespace lockstep::core {
namespace {

AttentionShape shape_of(int64_t window, bool fused) { return {6, 2, 8, window, fused}; }
const Kernels& cpu = kernels_on(at::kCPU);

struct Result64 {
  at::Tensor out, d_qkv;
};

// True where query i must not see key j, [B, 1, T, T].
at::Tensor hidden(const Documents& documents, int64_t batch, int64_t seq_len, int64_t window) {
  const at::Tensor first = at::arange(batch * seq_len, at::kLong) - documents.positions_R;
  const at::Tensor ones = at::ones({seq_len, seq_len}, at::kBool);
  at::Tensor out = ones.triu(1);
  if (window > 0) out = out.logical_or(ones.tril(-window));
  return out.logical_or(first.view({batch, 1, seq_len, 1}).ne(first.view({batch, 1, 1, seq_len})));
}

Result64 reference(const at::Tensor& qkv, const at::Tensor& d_out, const Documents& documents,
                   int64_t batch, const AttentionShape& s) {
  const int64_t window = s.window;
  const int64_t seq_len = qkv.size(0) / batch, group = s.heads / s.key_heads;
  at::Tensor x = leaf(qkv);
  const at::Tensor all =
      x.view({batch, seq_len, s.heads + 2 * s.key_heads, s.head_dim}).transpose(1, 2);
  const at::Tensor q = all.narrow(1, 0, s.heads);
  const at::Tensor k = all.narrow(1, s.heads, s.key_heads).repeat_interleave(group, 1);
  const at::Tensor v =
      all.narrow(1, s.heads + s.key_heads, s.key_heads).repeat_interleave(group, 1);
  at::Tensor scores =
      at::matmul(q, k.transpose(2, 3)) / std::sqrt(s.query_scalar > 0 ? s.query_scalar : 8.0);
  if (s.soft_cap > 0) scores = at::tanh(scores / s.soft_cap) * s.soft_cap;
  const at::Tensor p =
      at::softmax(scores.masked_fill(hidden(documents, batch, seq_len, window), -INFINITY), -1);
  const at::Tensor out = at::matmul(p, v).transpose(1, 2).reshape({batch * seq_len, -1});
  const auto grads = torch::autograd::grad({out}, {x}, {d_out.to(at::kDouble)});
  return {out.detach(), grads[0]};
}

// Three sequences: one document each; of many lengths; of one length; single tokens.
std::vector<Documents> some_documents(int64_t seq_len) {
  std::vector<Documents> out{Documents::create(3, seq_len, {}, at::kCPU)};
  std::vector<int64_t> uneven, even, single;
  for (int64_t row = 0; row < 3 * seq_len; ++row) {
    const int64_t t = row % seq_len;
    if (t == 0 || (row * row + 3 * row) % 17 == 1 || row == seq_len + 1) uneven.push_back(row);
    if (t % 10 == 0) even.push_back(row);
    single.push_back(row);
  }
  for (const auto& starts : {uneven, even, single})
    out.push_back(Documents::create(3, seq_len, starts, at::kCPU));
  return out;
}

TEST(Documents, AreRunsPositionsAndBounds) {
  const std::vector<int64_t> starts{0, 2, 4, 6, 7};
  const Documents d = Documents::create(2, 6, starts, at::kCPU);
  ASSERT_EQ(d.runs.size(), 3u);
  const int64_t runs[3][3] = {{0, 3, 2}, {6, 1, 1}, {7, 1, 5}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(d.runs[i].first_row, runs[i][0]);
    EXPECT_EQ(d.runs[i].count, runs[i][1]);
    EXPECT_EQ(d.runs[i].length, runs[i][2]);
  }
  EXPECT_EQ(d.longest, 5);
  const at::Tensor positions = at::tensor({0, 1, 0, 1, 0, 1, 0, 0, 1, 2, 3, 4}, at::kLong);
  EXPECT_TRUE(at::equal(d.positions_R, positions));
  EXPECT_TRUE(at::equal(d.bounds, at::tensor({0, 2, 4, 6, 7, 12}, at::kInt)));
  const Documents whole = Documents::create(2, 6, {}, at::kCPU);
  ASSERT_EQ(whole.runs.size(), 1u);
  EXPECT_EQ(whole.runs[0].count, 2);
  EXPECT_TRUE(at::equal(whole.positions_R, at::arange(12, at::kLong) % 6));
}

TEST(DocumentsDeathTest, ADocumentEndsWithItsSequence) {
  const auto create = [](std::vector<int64_t> starts) {
    Documents::create(2, 6, starts, at::kCPU);
  };
  EXPECT_DEATH(create({0, 3}), "1 of 12 rows of 6");
  EXPECT_DEATH(create({1, 6}), "2 documents");
  EXPECT_DEATH(create({0, 6, 6}), "rows 6 to 6 of 12");
  EXPECT_DEATH(create({0, 6, 12}), "rows 12 to 12 of 12");
}

TEST(Attention, FusedAndPlainMatchAutogradInFp64) {
  for (int64_t seq_len : {1, 9, 70, 150})
    for (const Documents& documents : some_documents(seq_len))
      for (int64_t window : {0, 1, 5, 64, 1000}) {
        const at::Tensor qkv = random_tensor({3 * seq_len, 10 * 8}, 1);
        const at::Tensor d_out = random_tensor({3 * seq_len, 6 * 8}, 2);
        const Result64 want = reference(qkv, d_out, documents, 3, shape_of(window, true));
        for (bool fused : {true, false}) {
          const std::string name = text(seq_len, " in ", documents.bounds.numel() - 1, " window ",
                                        window, fused ? " fused" : " plain");
          const AttentionShape shape = shape_of(window, fused);
          AttentionKept kept;
          EXPECT_LT(max_difference(cpu.attention(shape, qkv, documents, kept), want.out), 2e-6)
              << name;
          EXPECT_LT(
              max_difference(cpu.attention_back(shape, d_out, qkv, documents, kept), want.d_qkv),
              1e-5)
              << name;
        }
      }
}

TEST(Attention, CapsAndAnotherScaleMatchAutogradInFp64) {
  for (int64_t seq_len : {9, 150})
    for (const Documents& documents : some_documents(seq_len))
      for (int64_t window : {0, 20})
        for (bool fused : {true, false}) {
          AttentionShape shape = shape_of(window, fused);
          shape.query_scalar = 3;
          shape.soft_cap = 1.25f;
          const at::Tensor qkv = random_tensor({3 * seq_len, 10 * 8}, 1);
          const at::Tensor d_out = random_tensor({3 * seq_len, 6 * 8}, 2);
          const Result64 want = reference(qkv, d_out, documents, 3, shape);
          AttentionKept kept;
          EXPECT_LT(max_difference(cpu.attention(shape, qkv, documents, kept), want.out), 3e-6);
          EXPECT_LT(
              max_difference(cpu.attention_back(shape, d_out, qkv, documents, kept), want.d_qkv),
              2e-5)
              << seq_len << " " << window << " " << fused;
        }
}

TEST(Attention, Bf16StaysNearFp64) {
  for (const Documents& documents : some_documents(100))
    for (int64_t window : {0, 20})
      for (bool fused : {true, false}) {
        const AttentionShape shape = shape_of(window, fused);
        const at::Tensor qkv = random_tensor({300, 80}, 1).to(at::kBFloat16);
        const at::Tensor d_out = random_tensor({300, 48}, 2).to(at::kBFloat16);
        const Result64 want = reference(qkv, d_out, documents, 3, shape);
        AttentionKept kept;
        const at::Tensor out = cpu.attention(shape, qkv, documents, kept);
        EXPECT_LT(((out - want.out).norm() / want.out.norm()).item<double>(), 0.005) << fused;
        const at::Tensor d_qkv = cpu.attention_back(shape, d_out, qkv, documents, kept);
        EXPECT_LT(((d_qkv - want.d_qkv).norm() / want.d_qkv.norm()).item<double>(), 0.01) << fused;
      }
}

// --- the whole model ---

// Two documents of 5 and 4 tokens in one sequence, and each alone.
SlotInput packed() {
  const std::vector<int64_t> starts{0, 5};
  SlotInput slot = some_slot();
  at::Tensor labels = slot.labels_BT.narrow(0, 0, 1).clone();
  labels[0][4] = labels[0][8] = -100;
  return {slot.tokens_BT.narrow(0, 0, 1).contiguous(), labels, 1.0, 3, 1, starts};
}
SlotInput alone(int64_t first, int64_t length) {
  const SlotInput both = packed();
  return {both.tokens_BT.narrow(1, first, length).contiguous(),
          both.labels_BT.narrow(1, first, length).contiguous(), 1.0, 3, 1};
}

at::Tensor logits(WholeModel& model, const SlotInput& slot) {
  const at::Tensor x = model.schedule->forward_only(slot).value();
  std::vector<UnitPart> head{model.parts.back()};
  if (model.spec.shape.tied) head.push_back(model.parts.front());
  return logits_of(model.spec, head, x).clone();
}

double relative(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

// Linear layers get another number of rows, so bits may differ there.
TEST(Documents, PackedAreComputedAsAlone) {
  for (const layout::DecoderShape& shape : families())
    for (bool fused : {true, false})
      for (at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
        const double tolerance = compute == at::kFloat ? 1e-5 : 2e-2;
        DecoderOptions options = options_of(compute);
        options.fused_attention = fused;
        WholeModel model(shape, options);
        const at::Tensor both = logits(model, packed());
        EXPECT_LT(relative(both.narrow(0, 0, 5), logits(model, alone(0, 5))), tolerance);
        EXPECT_LT(relative(both.narrow(0, 5, 4), logits(model, alone(5, 4))), tolerance);
        const auto [loss, gradient] = model.gradients(packed());
        const auto [loss1, gradient1] = model.gradients(alone(0, 5));
        const auto [loss2, gradient2] = model.gradients(alone(5, 4));
        EXPECT_NEAR(loss / (loss1 + loss2), 1.0, tolerance);
        EXPECT_LT(relative(gradient1 + gradient2, gradient), tolerance)
            << shape.gpt2 << fused << compute;
        EXPECT_NE(loss, model.loss_of({packed().tokens_BT, packed().labels_BT, 1.0}))
            << "as one document";
      }
}

// Attention's own products have the same shapes, whatever stands beside a document.
TEST(Attention, ADocumentHasTheBitsThatItHasAlone) {
  const std::vector<int64_t> starts{0, 70};
  const Documents both = Documents::create(1, 150, starts, at::kCPU);
  for (at::ScalarType compute : {at::kFloat, at::kBFloat16})
    for (bool fused : {true, false}) {
      const AttentionShape shape = shape_of(20, fused);
      const at::Tensor qkv = random_tensor({150, 80}, 1).to(compute);
      const at::Tensor d_out = random_tensor({150, 48}, 2).to(compute);
      AttentionKept kept, kept_alone;
      const at::Tensor out = cpu.attention(shape, qkv, both, kept);
      const at::Tensor d_qkv = cpu.attention_back(shape, d_out, qkv, both, kept);
      for (const auto& [first, length] : {std::pair<int64_t, int64_t>(0, 70), {70, 80}}) {
        const Documents one = Documents::create(1, length, {}, at::kCPU);
        const at::Tensor x = qkv.narrow(0, first, length).clone();
        const at::Tensor d = d_out.narrow(0, first, length).clone();
        EXPECT_TRUE(
            at::equal(cpu.attention(shape, x, one, kept_alone), out.narrow(0, first, length)));
        EXPECT_TRUE(at::equal(cpu.attention_back(shape, d, x, one, kept_alone),
                              d_qkv.narrow(0, first, length)));
      }
    }
}

// A slot of sequences that are one document each has the bits that it has without documents. A
// sequence of two changes nothing in its neighbour.
TEST(Documents, OneDocumentIsTheSequence) {
  const std::vector<int64_t> whole{0, 9}, mixed{0, 5, 9};
  const SlotInput slot = some_slot();
  const auto with = [&](const std::vector<int64_t>& starts) {
    return SlotInput{slot.tokens_BT, slot.labels_BT, 1.0, 3, 1, starts};
  };
  for (const layout::DecoderShape& shape : families())
    for (at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
      const double tolerance = compute == at::kFloat ? 1e-5 : 2e-2;
      WholeModel model(shape, options_of(compute));
      EXPECT_TRUE(at::equal(model.gradients(slot).second, model.gradients(with(whole)).second));
      const at::Tensor plain = logits(model, slot), beside = logits(model, with(mixed));
      EXPECT_LT(relative(beside.narrow(0, 9, 9), plain.narrow(0, 9, 9)), tolerance);
      EXPECT_LT(relative(beside.narrow(0, 0, 5), plain.narrow(0, 0, 5)), tolerance);
      EXPECT_GT(relative(beside.narrow(0, 5, 4), plain.narrow(0, 5, 4)), tolerance);
    }
}

TEST(Documents, RecomputedBlocksGiveTheSameBits) {
  for (const layout::DecoderShape& shape : families())
    for (bool fused : {true, false}) {
      DecoderOptions options = options_of(at::kFloat);
      options.fused_attention = fused;
      WholeModel kept(shape, options);
      options.recompute_every = 1;
      WholeModel recomputed(shape, options);
      EXPECT_TRUE(
          at::equal(kept.gradients(packed()).second, recomputed.gradients(packed()).second));
    }
}

}  // namespace
}  // namespace lockstep::core
