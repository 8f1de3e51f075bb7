// The CUDA kernels against their CPU forms, where the design says the same bits, and against
// LibTorch's autograd in fp64.
#include <gtest/gtest.h>

#include "base/hash.h"
#include "core/kernels/kernel_table.h"
#include "layout/model_spec.h"
#include "tests/support/device_checks.h"

namespace lockstep::core {
namespace {

constexpr int64_t kTile = layout::kTileElements;
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
float* floats(const at::Tensor& t) { return t.data_ptr<float>(); }

TEST(GpuDevice, DoesWhatADeviceDoes) { check_device(local_device(), kGpu); }

TEST(GpuAdamW, TheCpusBits) {
  const int64_t n = 3 * kTile;
  at::Tensor grad = random_tensor({n}, 1) * 1e-3, master = random_tensor({n}, 2);
  at::Tensor m = random_tensor({n}, 3) * 1e-3, v = random_tensor({n}, 4).square() * 1e-6;
  grad.narrow(0, 0, 64).zero_();
  v.narrow(0, 0, 128).mul_(1e-36);  // subnormals stay
  const at::Tensor on_gpu[] = {grad.to(kGpu), master.to(kGpu), m.to(kGpu), v.to(kGpu)};
  for (int64_t t = 1; t <= 5; ++t) {
    const AdamWStep step = AdamWStep::create(1e-3, 0.9, 0.95, 1e-8, 0.1, 0.7, t);
    cpu.adamw_update(step, t % 2 == 0, floats(grad), floats(master), floats(m), floats(v), n);
    gpu.adamw_update(step, t % 2 == 0, floats(on_gpu[0]), floats(on_gpu[1]), floats(on_gpu[2]),
                     floats(on_gpu[3]), n);
  }
  EXPECT_TRUE(same_bits(master, on_gpu[1]));
  EXPECT_TRUE(same_bits(m, on_gpu[2]));
  EXPECT_TRUE(same_bits(v, on_gpu[3]));
}

TEST(GpuTileNorm, TheCpusBits) {
  const int64_t tiles = 37;  // not a whole number of blocks
  at::Tensor grad = random_tensor({tiles * kTile}, 5), sums = at::zeros({tiles}, at::kDouble);
  const at::Tensor on_gpu = grad.to(kGpu), gpu_sums = sums.to(kGpu);
  cpu.scale_and_square_tiles(floats(grad), 0.37f, tiles, sums.data_ptr<double>());
  gpu.scale_and_square_tiles(floats(on_gpu), 0.37f, tiles, gpu_sums.data_ptr<double>());
  EXPECT_TRUE(same_bits(grad, on_gpu));
  EXPECT_TRUE(same_bits(sums, gpu_sums));
}

TEST(GpuAddKernels, TheCpusBits) {
  const int64_t n = 100003;
  at::Tensor sum = random_tensor({n}, 6);
  const at::Tensor part = random_tensor({n}, 7), half = part.to(at::kBFloat16);
  const at::Tensor gpu_sum = sum.to(kGpu), gpu_half = half.to(kGpu);
  for (const at::Tensor& one : {part, half}) {
    cpu.add_to(sum, one);
    gpu.add_to(gpu_sum, one.to(kGpu));
  }
  EXPECT_TRUE(same_bits(sum, gpu_sum));
  at::Tensor narrow = at::empty_like(half), gpu_narrow = at::empty_like(gpu_half);
  cpu.narrow(narrow, sum);
  gpu.narrow(gpu_narrow, gpu_sum);
  EXPECT_TRUE(same_bits(narrow, gpu_narrow));
  cpu.set_to(sum, narrow);
  gpu.set_to(gpu_sum, gpu_narrow);
  EXPECT_TRUE(same_bits(sum, gpu_sum));
}

// One warp a row, one block a row.
class GpuNorms : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Dims, GpuNorms, testing::Values(37, 128, 1000, 4096));

TEST_P(GpuNorms, RmsNormMatchesAutogradInFp64) {
  const int64_t rows = 300, dim = GetParam();
  const at::Tensor x = random_tensor({rows, dim}, 8), w = random_tensor({dim}, 9);
  const at::Tensor dy = random_tensor({rows, dim}, 10), residual = random_tensor({rows, dim}, 11);
  const at::Tensor x64 = fp64(x), w64 = fp64(w);
  const at::Tensor y64 = x64 * (x64.pow(2).mean(-1, true) + 1e-5).rsqrt() * w64;
  const auto grads = torch::autograd::grad({y64}, {x64, w64}, {dy.to(at::kDouble)});
  at::Tensor scale, dw = at::zeros({dim}, kGpu), dx = dy.to(kGpu);
  EXPECT_LT(max_difference(gpu.rms_norm(x.to(kGpu), w.to(kGpu), 1e-5, scale), y64), 1e-5);
  gpu.rms_norm_back(dx, x.to(kGpu), w.to(kGpu), scale, residual.to(kGpu), dw);
  EXPECT_LT(max_difference(dx, grads[0] + residual), 2e-5);
  EXPECT_LT(max_difference(dw, grads[1]), 2e-4);
}

TEST_P(GpuNorms, LayerNormMatchesAutogradInFp64) {
  const int64_t rows = 300, dim = GetParam();
  const at::Tensor x = random_tensor({rows, dim}, 12), w = random_tensor({dim}, 13);
  const at::Tensor b = random_tensor({dim}, 14), dy = random_tensor({rows, dim}, 15);
  const at::Tensor x64 = fp64(x), w64 = fp64(w), b64 = fp64(b);
  const at::Tensor y64 = at::layer_norm(x64, {dim}, w64, b64, 1e-5);
  const auto grads = torch::autograd::grad({y64}, {x64, w64, b64}, {dy.to(at::kDouble)});
  at::Tensor stats, dw = at::zeros({dim}, kGpu), db = at::zeros({dim}, kGpu), dx = dy.to(kGpu);
  const at::Tensor y = gpu.layer_norm(x.to(kGpu), w.to(kGpu), b.to(kGpu), 1e-5, stats);
  EXPECT_LT(max_difference(y, y64), 1e-5);
  gpu.layer_norm_back(dx, x.to(kGpu), w.to(kGpu), stats, {}, dw, db);
  EXPECT_LT(max_difference(dx, grads[0]), 2e-5);
  EXPECT_LT(max_difference(dw, grads[1]), 2e-4);
  EXPECT_LT(max_difference(db, grads[2]), 2e-4);
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
  EXPECT_TRUE(same_bits(part(y), gpu.rms_norm(part(x), gpu_w, 1e-6, plain_scale)));
  gpu.head_norm_back(dx, x, gpu_w, scale, dw, first, heads);
  at::Tensor plain_dx = part(dy);
  gpu.rms_norm_back(plain_dx, part(x), gpu_w, plain_scale, {}, plain_dw);
  EXPECT_TRUE(same_bits(part(dx), plain_dx));
  EXPECT_TRUE(same_bits(dw, plain_dw));
  EXPECT_TRUE(same_bits(y.narrow(1, 0, first), x.narrow(1, 0, first))) << "other columns";
}

TEST(GpuActivations, MatchAutogradInFp64) {
  const at::Tensor gate_up = random_tensor({65, 2 * 33}, 19) * 4, dy = random_tensor({65, 33}, 20);
  const at::Tensor g64 = fp64(gate_up);
  const at::Tensor y64 = at::silu(g64.narrow(1, 0, 33)) * g64.narrow(1, 33, 33);
  at::Tensor d = gate_up.to(kGpu);
  EXPECT_LT(max_difference(gpu.swiglu(d), y64), 1e-5);
  gpu.swiglu_back(dy.to(kGpu), d);
  EXPECT_LT(max_difference(d, torch::autograd::grad({y64}, {g64}, {dy.to(at::kDouble)})[0]), 2e-5);
  const at::Tensor x64 = fp64(dy), gelu64 = at::gelu(x64, "tanh");
  at::Tensor dx = dy.to(kGpu);
  EXPECT_LT(max_difference(gpu.gelu_new(dx), gelu64), 1e-6);
  gpu.gelu_new_back(dy.to(kGpu), dx);
  EXPECT_LT(max_difference(dx, torch::autograd::grad({gelu64}, {x64}, {dy.to(at::kDouble)})[0]),
            1e-5);
}

TEST(GpuRotary, TurningBackRestores) {
  const at::Tensor angle = random_tensor({16, 4}, 21).to(kGpu), x = random_tensor({32, 24}, 22);
  at::Tensor turned = x.to(kGpu);
  const at::Tensor positions = (at::arange(32, at::kLong) * 5 % 16).to(kGpu);
  const RotaryTable table{angle.cos(), angle.sin()};
  gpu.rotate_rows(turned, table, positions, 3, 8, 1.0f);
  EXPECT_GT(max_difference(turned, x), 0.1);
  gpu.rotate_rows(turned, table, positions, 3, 8, -1.0f);
  EXPECT_LT(max_difference(turned, x), 1e-6);
}

TEST(GpuCrossEntropy, MatchesAutogradAndSkipsIgnoredRows) {
  for (const double smoothing : {0.0, 0.1}) {
    const double z = smoothing / 100;
    const at::Tensor logits = random_tensor({6, 5000}, 23) * 3;
    const at::Tensor labels = at::tensor({3, -100, 4999, 0, 7, -100}, at::kLong);
    const at::Tensor l64 = fp64(logits), valid = (labels >= 0).to(at::kDouble);
    const at::Tensor rows64 =
        at::cross_entropy_loss(l64, labels, {}, at::Reduction::None, -100, smoothing) +
        z * at::logsumexp(l64, 1).square() * valid;
    const auto grads = torch::autograd::grad({rows64.sum()}, {l64});
    at::Tensor got = logits.to(kGpu), losses = at::empty({6}, at::kDouble).to(kGpu);
    gpu.cross_entropy(got, labels.to(kGpu), {z, smoothing}, 0.25f, true, losses);
    EXPECT_LT(max_difference(losses, rows64), 1e-5);
    EXPECT_LT(max_difference(got, grads[0] * 0.25), 1e-6);
  }
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

// Which elements are kept is a function of (key, counter, place): that of the CPU.
TEST(GpuDropout, DrawsByCounter) {
  const int64_t n = 1640;
  at::Tensor x = at::ones({n}, kGpu);
  const DropoutDraw draw{99, 7, uint32_t{1} << 30, 2.0f};  // a quarter is dropped
  gpu.dropout(x, draw);
  const at::Tensor got = x.cpu();
  for (int64_t e = 0; e < n; ++e) {
    const Philox4 random = philox(99, 7, static_cast<uint64_t>(e / 64 * 16 + e % 16));
    const float want = random.word[e % 64 / 16] >= draw.threshold ? 2.0f : 0.0f;
    ASSERT_EQ(floats(got)[e], want) << e;
  }
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
