// What the table of kernels does on a GPU beside calling them, and what LibTorch computes for it.
// The kernels themselves are tested by the cases of tests/cuda_host, which this program runs too.
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/kernels/cuda_attention.h"
#include "core/kernels/cudnn_attention.h"
#include "core/kernels/kernel_table.h"
#include "tests/support/device_checks.h"

namespace lockstep::core {
namespace {

const at::Device kGpu(at::kCUDA, 0);
const Kernels &cpu = kernels_on(at::kCPU), &gpu = kernels_on(kGpu);

at::Tensor random_tensor(at::IntArrayRef shape, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::TensorOptions(at::kFloat));
}
double max_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.cpu().to(at::kDouble) - b.cpu().to(at::kDouble)).abs().max().item<double>();
}
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.cpu().contiguous(), y = b.cpu().contiguous();
  return x.nbytes() == y.nbytes() && std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}
at::Tensor fp64(const at::Tensor& t) { return t.to(at::kDouble).requires_grad_(); }

TEST(GpuDevice, DoesWhatADeviceDoes) { check_device(local_device(), kGpu); }

TEST(GpuFold, TheCpusBits) {
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat})
    for (const size_t parts : {1, 2, 4, 8})
      for (const size_t sums : {0, 1, 3}) {
        std::vector<at::Tensor> part, sum{at::zeros({100003}, at::kFloat)}, gpu_part, gpu_sum;
        for (size_t i = 0; i < parts; ++i) part.push_back(random_tensor({100003}, i).to(type));
        for (size_t i = 1; i < sums; ++i) sum.push_back(random_tensor({100003}, 10 + i));
        for (const at::Tensor& t : part) gpu_part.push_back(t.to(kGpu));
        for (const at::Tensor& t : sum) gpu_sum.push_back(t.to(kGpu));
        cpu.fold(sum[0], part, std::span(sum).first(sums));
        gpu.fold(gpu_sum[0], gpu_part, std::span(gpu_sum).first(sums));
        EXPECT_TRUE(same_bits(sum[0], gpu_sum[0])) << parts << " parts, " << sums << " sums";
      }
}

TEST(GpuHeadNorm, IsRmsNormOfEachHead) {
  const int64_t rows = 50, heads = 3, dim = 64, first = 128;
  const at::Tensor x = random_tensor({rows, 512}, 16).to(kGpu), w = random_tensor({dim}, 17);
  const at::Tensor dy = random_tensor({rows, 512}, 18).to(kGpu), gpu_w = w.to(kGpu);
  const auto part = [&](const at::Tensor& t) {
    return t.narrow(1, first, heads * dim).reshape({rows * heads, dim});
  };
  at::Tensor y = x.clone(), dx = dy.clone(), scale, plain_scale;
  at::Tensor dw = at::zeros({dim}, kGpu), plain_dw = at::zeros({dim}, kGpu);
  gpu.head_norm(x, gpu_w, y, scale, first, heads, 1e-6);
  EXPECT_TRUE(same_bits(part(y), gpu.add_rms_norm_(part(x), {}, gpu_w, 1e-6, plain_scale)));
  gpu.head_norm_back(dx, x, gpu_w, scale, dw, first, heads);
  at::Tensor plain_dx = part(dy);
  gpu.rms_norm_back(plain_dx, part(x), gpu_w, plain_scale, {}, plain_dw);
  EXPECT_TRUE(same_bits(part(dx), plain_dx));
  EXPECT_TRUE(same_bits(dw, plain_dw));
  EXPECT_TRUE(same_bits(y.narrow(1, 0, first), x.narrow(1, 0, first))) << "other columns";
}

// The CPU adds rows in token order: so does the GPU.
TEST(GpuEmbedding, RowsAreAddedInTokenOrder) {
  const int64_t rows = 512, dim = 300;
  const at::Tensor dy = random_tensor({rows, dim}, 24).to(at::kBFloat16);
  const at::Tensor tokens = (at::arange(rows, at::kLong) * 7) % 5;
  at::Tensor sum = random_tensor({8, dim}, 25), positions = random_tensor({64, dim}, 26);
  at::Tensor gpu_sum = sum.to(kGpu), gpu_positions = positions.to(kGpu);
  const at::Tensor places = at::arange(rows, at::kLong) % 64;
  cpu.add_rows(sum, dy, tokens);
  cpu.add_rows(positions, dy, places);
  gpu.add_rows(gpu_sum, dy.to(kGpu), tokens.to(kGpu));
  gpu.add_rows(gpu_positions, dy.to(kGpu), places.to(kGpu));
  EXPECT_TRUE(same_bits(sum, gpu_sum));
  EXPECT_TRUE(same_bits(positions, gpu_positions));
}

TEST(GpuColumns, SumsDoNotChangeFromRunToRun) {
  const at::Tensor dy = random_tensor({20000, 96}, 27).to(kGpu);
  at::Tensor once = at::zeros({64}, kGpu), again = at::zeros({64}, kGpu);
  gpu.add_columns(once, dy, 32);
  gpu.add_columns(again, dy, 32);
  EXPECT_TRUE(same_bits(once, again));
  EXPECT_LT(max_difference(once, dy.narrow(1, 32, 64).to(at::kDouble).sum(0)), 1e-2);
}

// Groups of query heads on one key head, with and without a window, in both compute dtypes, by the
// flash kernel and with whole matrices; sequences of one document, and of several.
class GpuAttention : public testing::TestWithParam<std::vector<int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Starts, GpuAttention,
                         testing::Values(std::vector<int64_t>{},
                                         std::vector<int64_t>{0, 20, 40, 60},
                                         std::vector<int64_t>{0, 13, 14, 40, 77}));

TEST_P(GpuAttention, MatchesAutogradInFp64) {
  const int64_t batch = 2, h = 4, k = 2, e = 16, t = 40;
  const Documents documents = Documents::create(batch, t, GetParam(), kGpu);
  const at::Tensor first = at::arange(batch * t, at::kLong) - documents.positions_R.cpu();
  const at::Tensor other = first.view({batch, 1, t, 1}).ne(first.view({batch, 1, 1, t}));
  for (const int64_t window : {0, 9})
    for (const auto& [dtype, fused] :
         {std::pair(at::kFloat, true), {at::kBFloat16, true}, {at::kBFloat16, false}}) {
      const double tolerance = dtype == at::kFloat ? 2e-5 : 4e-2;
      const at::Tensor qkv = random_tensor({batch * t, (h + 2 * k) * e}, 28).to(dtype);
      const at::Tensor d_out = random_tensor({batch * t, h * e}, 29).to(dtype);
      const at::Tensor all64 = fp64(qkv);
      const at::Tensor heads = all64.view({batch, t, h + 2 * k, e}).transpose(1, 2);
      const auto repeated = [&](int64_t head) {
        return heads.narrow(1, head, k).repeat_interleave(h / k, 1);
      };
      at::Tensor seen = at::ones({t, t}, at::kBool).tril(0);
      if (window > 0) seen = seen.logical_and(at::ones({t, t}, at::kBool).triu(1 - window));
      const at::Tensor scores = at::matmul(heads.narrow(1, 0, h), repeated(h).transpose(2, 3)) /
                                std::sqrt(static_cast<double>(e));
      const at::Tensor hidden = other.logical_or(seen.logical_not());
      const at::Tensor p = at::softmax(scores.masked_fill(hidden, -INFINITY), -1);
      const at::Tensor out64 =
          at::matmul(p, repeated(h + k)).transpose(1, 2).reshape({batch * t, h * e});
      const auto grads = torch::autograd::grad({out64}, {all64}, {d_out.to(at::kDouble)});
      AttentionKept kept;
      const AttentionShape shape{h, k, e, window, fused};
      const at::Tensor out = gpu.attention(shape, qkv.to(kGpu), documents, kept);
      EXPECT_LT(max_difference(out, out64), tolerance) << window << " " << dtype;
      const auto back = [&] {
        return gpu.attention_back(shape, d_out.to(kGpu), qkv.to(kGpu), documents, kept);
      };
      const at::Tensor d = back();
      EXPECT_LT(max_difference(d, grads[0]), tolerance) << window << " " << dtype;
      EXPECT_TRUE(same_bits(d, back()));
    }
}

// Heads and lengths of real models, whose products of scores take one call of cuDNN, and several:
// as LibTorch's flash kernel within roundings of bf16, and the same bits again.
TEST(GpuLargeHeads, AreAsThoseOfTheFlashKernel) {
  struct Case {
    int64_t batch, length, heads, key_heads, head_dim;
  };
  for (const auto& [batch, t, h, k, e] : {Case{2, 2048, 16, 4, 128},
                                          {1, 8192, 32, 8, 128},
                                          {3, 1000, 14, 2, 64},
                                          {2, 512, 8, 8, 80},
                                          {1, 4096, 8, 1, 128}}) {
    const Documents documents = Documents::create(batch, t, {}, kGpu);
    const AttentionShape shape{h, k, e, 0, true};
    const at::Tensor qkv = at::randn({batch * t, (h + 2 * k) * e}, kGpu).to(at::kBFloat16);
    const at::Tensor d_out = at::randn({batch * t, h * e}, kGpu).to(at::kBFloat16);
    AttentionKept kept, again, plain;
    const at::Tensor out = gpu.attention(shape, qkv, documents, kept);
    EXPECT_EQ(cudnn_applies(shape, qkv, documents),
              at::cuda::getCurrentDeviceProperties()->major == 9);
    EXPECT_TRUE(same_bits(out, gpu.attention(shape, qkv, documents, again)));
    EXPECT_LT(max_difference(out, flash_attention(shape, qkv, documents, plain)), 2e-2) << t;
    const at::Tensor d = gpu.attention_back(shape, d_out, qkv, documents, kept);
    const at::Tensor want = flash_attention_back(shape, d_out, qkv, documents, plain);
    EXPECT_LT(max_difference(d, want), 1e-2 * want.abs().max().item<double>()) << t;
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(same_bits(d, gpu.attention_back(shape, d_out, qkv, documents, again))) << t;
  }
}

TEST(GpuHead, ProductsOfBf16AreAddedInFp32) {
  const at::Tensor a = random_tensor({48, 64}, 30).to(at::kBFloat16);
  const at::Tensor b = random_tensor({64, 32}, 31).to(at::kBFloat16);
  at::Tensor sum = random_tensor({48, 32}, 32);
  const at::Tensor want = sum.to(at::kDouble) + at::mm(a.to(at::kDouble), b.to(at::kDouble));
  at::Tensor got = sum.to(kGpu);
  gpu.add_product(got, a.to(kGpu), b.to(kGpu));
  EXPECT_LT(max_difference(got, want), 1e-4);
}

}  // namespace
}  // namespace lockstep::core
