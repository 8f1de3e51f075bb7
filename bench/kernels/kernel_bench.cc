// The decoder's kernels beside the plain form of LibTorch's operations, in turn, the best of some
// rounds each:
//
//   kernel_bench [threads] [rows] [dim] [tokens of a sequence]
//
// Prints a Markdown table in milliseconds. The plain forms run without autograd; their backward is
// what autograd would call, or what its formula takes.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>

#include "base/clock.h"
#include "base/hash.h"
#include "core/kernels/kernel_table.h"

namespace lockstep::core {
namespace {

constexpr int kRounds = 7;
const Kernels& cpu = kernels_on(at::kCPU);

double seconds_of(const std::function<void()>& run) {
  const double before = system_clock().monotonic_s();
  run();
  return system_clock().monotonic_s() - before;
}

void race(const char* name, at::ScalarType dtype, const std::function<void()>& ours,
          const std::function<void()>& plain) {
  double best[2] = {1e9, 1e9};
  for (int round = 0; round < kRounds; ++round) {
    best[0] = std::min(best[0], seconds_of(ours));
    best[1] = std::min(best[1], seconds_of(plain));
  }
  std::printf("| %s | %s | %.3f | %.3f | %.2f |\n", name, dtype == at::kFloat ? "fp32" : "bf16",
              1e3 * best[0], 1e3 * best[1], best[1] / best[0]);
}

struct Shape {
  int64_t rows, dim, ffn, vocab = 8192, seq_len = 256;
};

void race_norm(const Shape& s, at::ScalarType dtype) {
  const at::Tensor x = at::randn({s.rows, s.dim}).to(dtype), w = at::randn({s.dim}).to(dtype);
  at::Tensor dy = at::randn({s.rows, s.dim}).to(dtype), scale, dw = at::zeros({s.dim});
  race(
      "RMSNorm", dtype, [&] { cpu.add_rms_norm_(x, {}, w, 1e-5, scale); },
      [&] { at::rms_norm(x, {s.dim}, w, 1e-5); });
  at::Tensor branch = x.clone(), plain_branch = x.clone();
  race(
      "residual, RMSNorm", dtype, [&] { cpu.add_rms_norm_(branch, x, w, 1e-5, scale); },
      [&] { at::rms_norm(plain_branch.add_(x), {s.dim}, w, 1e-5); });
  const auto plain_back = [&] {
    const at::Tensor xf = x.to(at::kFloat), df = dy.to(at::kFloat), r = scale;
    const at::Tensor g = df * w.to(at::kFloat);
    (r * g - xf * (r.pow(3) * (g * xf).mean(-1, true))).to(dtype);
    (df * xf * r).sum(0);
  };
  race(
      "RMSNorm, backward", dtype, [&] { cpu.rms_norm_back(dy, x, w, scale, {}, dw); }, plain_back);
}

void race_swiglu(const Shape& s, at::ScalarType dtype) {
  const at::Tensor gate_up = at::randn({s.rows, 2 * s.ffn}).to(dtype);
  const at::Tensor dy = at::randn({s.rows, s.ffn}).to(dtype);
  const at::Tensor gate = gate_up.narrow(1, 0, s.ffn), up = gate_up.narrow(1, s.ffn, s.ffn);
  race(
      "SwiGLU", dtype, [&] { cpu.swiglu(gate_up); }, [&] { at::silu(gate) * up; });
  at::Tensor used = gate_up.clone();
  race(
      "SwiGLU, backward", dtype, [&] { cpu.swiglu_back(dy, used); },
      [&] {
        const at::Tensor d_up = dy * at::silu(gate);
        at::silu_backward(dy * up, gate);
      });
}

void race_rotation(const Shape& s, at::ScalarType dtype) {
  const int64_t e = 64, heads = s.dim / e;
  const RotaryTable table = RotaryTable::create(s.seq_len, e, 10000.0);
  at::Tensor x = at::randn({s.rows, s.dim}).to(dtype);
  const at::Tensor cos = table.cos_TH.unsqueeze(1), sin = table.sin_TH.unsqueeze(1);
  const at::Tensor positions = at::arange(s.rows, at::kLong) % s.seq_len;
  race(
      "RoPE", dtype, [&] { cpu.rotate_rows(x, table, positions, heads, e, 1.0f); },
      [&] {
        const auto half = x.view({-1, s.seq_len, heads, e}).to(at::kFloat).chunk(2, -1);
        at::cat({half[0] * cos - half[1] * sin, half[1] * cos + half[0] * sin}, -1).to(dtype);
      });
}

void race_loss(const Shape& s, at::ScalarType dtype) {
  const at::Tensor logits = at::randn({s.rows, s.vocab}).to(dtype);
  const at::Tensor labels = at::arange(s.rows, at::kLong) % s.vocab;
  const at::Tensor used = logits.clone(), losses = at::empty({s.rows}, at::kDouble);
  const auto ours = [&] { cpu.cross_entropy(used, labels, {}, 1.0f, true, losses); };
  race("cross-entropy and its gradient", dtype, ours, [&] {
    const at::Tensor log_p = at::log_softmax(logits.to(at::kFloat), -1);
    at::nll_loss(log_p, labels, {}, at::Reduction::Sum);
    at::Tensor d = log_p.exp();
    d.scatter_add_(1, labels.unsqueeze(1), at::full({s.rows, 1}, -1.0f));
    d.to(dtype);
  });
}

AttentionShape attention_shape(const Shape& s) {
  const int64_t heads = s.dim / 64;
  return {heads, heads / 2, 64, /*window=*/0, /*fused=*/true};
}

void race_attention(const Shape& s, at::ScalarType dtype) {
  const int64_t batch = s.rows / s.seq_len, h = s.dim / 64;
  const Documents documents = Documents::create(batch, s.seq_len, {}, at::kCPU);
  const at::Tensor qkv = at::randn({s.rows, 2 * s.dim}).to(dtype);
  const at::Tensor d_out = at::randn({s.rows, s.dim}).to(dtype);
  const AttentionShape shape = attention_shape(s);
  const auto heads = [&](const at::Tensor& x, int64_t first, int64_t count) {
    return x.view({batch, s.seq_len, -1, 64}).narrow(2, first, count).transpose(1, 2);
  };
  at::Tensor out, log_sum;
  const at::Tensor q = heads(qkv, 0, h), d = heads(d_out, 0, h);
  const auto repeated = [&](int64_t first) {
    return heads(qkv, first, h / 2).repeat_interleave(2, 1);
  };
  const auto plain = [&] {
    std::tie(out, log_sum) = at::_scaled_dot_product_flash_attention_for_cpu(
        q, repeated(h), repeated(h + h / 2), 0.0, true);
  };
  race(
      "attention", dtype,
      [&] {
        AttentionKept kept;
        cpu.attention(shape, qkv, documents, kept);
      },
      plain);
  AttentionKept kept;
  cpu.attention(shape, qkv, documents, kept);
  race(
      "attention, backward", dtype, [&] { cpu.attention_back(shape, d_out, qkv, documents, kept); },
      [&] {
        auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
            d, q, repeated(h), repeated(h + h / 2), out, log_sum, 0.0, true);
        dk.view({batch, h / 2, 2, s.seq_len, 64}).sum(2);
        dv.view({batch, h / 2, 2, s.seq_len, 64}).sum(2);
      });
}

// Sequences of 8 documents of uneven lengths, which do not see each other, beside LibTorch's flash
// attention of whole sequences: its form for documents takes a mask of T*T and does all the work.
// Every round has lengths of its own, as a batch of a packed data set has.
void race_documents(const Shape& s, at::ScalarType dtype) {
  const int64_t batch = s.rows / s.seq_len, h = s.dim / 64;
  const at::Tensor qkv = at::randn({s.rows, 2 * s.dim}).to(dtype);
  const at::Tensor d_out = at::randn({s.rows, s.dim}).to(dtype);
  const AttentionShape shape = attention_shape(s);
  uint64_t round = 0;
  const auto draw = [&] {
    std::set<int64_t> starts;
    for (int64_t row = 0; row < s.rows; row += s.seq_len) {
      starts.insert(row);
      for (size_t want = starts.size() + 7; starts.size() < want;)
        starts.insert(row +
                      static_cast<int64_t>(mix64(++round) % static_cast<uint64_t>(s.seq_len)));
    }
    const std::vector<int64_t> list(starts.begin(), starts.end());
    return Documents::create(batch, s.seq_len, list, at::kCPU);
  };
  const auto heads = [&](int64_t first) {
    return qkv.view({batch, s.seq_len, -1, 64})
        .narrow(2, first, first == 0 ? h : h / 2)
        .transpose(1, 2);
  };
  at::Tensor mask = at::zeros({batch, 1, s.seq_len, s.seq_len}, dtype);
  mask.masked_fill_(at::ones_like(mask, at::kBool).triu(1), -INFINITY);
  race(
      "attention, 8 documents", dtype,
      [&] {
        AttentionKept kept;
        cpu.attention(shape, qkv, draw(), kept);
      },
      [&] {
        at::_scaled_dot_product_flash_attention_for_cpu(heads(0), heads(h).repeat_interleave(2, 1),
                                                        heads(h + h / 2).repeat_interleave(2, 1),
                                                        0.0, false, mask);
      });
  const Documents whole = Documents::create(batch, s.seq_len, {}, at::kCPU);
  AttentionKept kept;
  race(
      "… and backward; one document", dtype,
      [&] {
        const Documents documents = draw();
        cpu.attention(shape, qkv, documents, kept);
        cpu.attention_back(shape, d_out, qkv, documents, kept);
      },
      [&] {
        cpu.attention(shape, qkv, whole, kept);
        cpu.attention_back(shape, d_out, qkv, whole, kept);
      });
}

void race_adamw() {
  const int64_t n = 4 << 20;
  at::Tensor p = at::randn({n}), m = at::zeros({n}), v = at::zeros({n}), g = at::randn({n});
  at::Tensor step = at::tensor(3.0f);
  const AdamWStep adamw = AdamWStep::create(1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 3);
  race(
      "AdamW, 4 Mi elements", at::kFloat,
      [&] {
        const AdamWRun<float> run{g.data_ptr<float>(),
                                  p.data_ptr<float>(),
                                  m.data_ptr<float>(),
                                  v.data_ptr<float>(),
                                  nullptr,
                                  n,
                                  {},
                                  true};
        cpu.adamw_update(adamw, std::span(&run, 1));
      },
      [&] {
        at::_fused_adamw_({p}, {g}, {m}, {v}, {}, {step}, 1e-3, 0.9, 0.95, 0.1, 1e-8, false, false);
      });
  at::Tensor narrow_m = at::zeros({n}, at::kBFloat16), narrow_v = narrow_m.clone();
  race(
      "AdamW, moments in bf16 by chance", at::kBFloat16,
      [&] {
        const AdamWRun<Bf16> run{g.data_ptr<float>(),
                                 p.data_ptr<float>(),
                                 static_cast<Bf16*>(narrow_m.data_ptr()),
                                 static_cast<Bf16*>(narrow_v.data_ptr()),
                                 nullptr,
                                 n,
                                 {1, 0},
                                 true};
        cpu.adamw_update(adamw, std::span(&run, 1));
      },
      [&] {  // theirs has fp32 moments
        at::_fused_adamw_({p}, {g}, {m}, {v}, {}, {step}, 1e-3, 0.9, 0.95, 0.1, 1e-8, false, false);
      });
}

void run(int threads, Shape s) {
  at::set_num_threads(threads);
  std::printf("%d threads, %lld rows of %lld, feed-forward %lld, vocabulary %lld\n\n", threads,
              static_cast<long long>(s.rows), static_cast<long long>(s.dim),
              static_cast<long long>(s.ffn), static_cast<long long>(s.vocab));
  std::printf("| kernel | dtype | ours, ms | LibTorch, ms | ratio |\n|---|---|---|---|---|\n");
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    race_norm(s, dtype);
    race_swiglu(s, dtype);
    race_rotation(s, dtype);
    race_attention(s, dtype);
    race_documents(s, dtype);
    race_loss(s, dtype);
  }
  race_adamw();
}

}  // namespace
}  // namespace lockstep::core

int main(int argc, char** argv) {
  const auto number = [&](int i, int64_t fallback) {
    return argc > i ? std::atoll(argv[i]) : fallback;
  };
  const int64_t dim = number(3, 512);
  lockstep::core::run(
      static_cast<int>(number(1, 1)),
      {.rows = number(2, 1024), .dim = dim, .ffn = dim * 11 / 4, .seq_len = number(4, 256)});
}
