#include "core/kernels/kernel_table.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

#include "core/device/devices.h"
#include "core/kernels/add_kernels.h"
#include "core/kernels/attention.h"
#include "core/kernels/cuda_attention.h"
#include "core/kernels/cudnn_attention.h"
#include "core/kernels/element_type.h"
#include "core/kernels/elementwise_kernels.h"
#include "core/kernels/initial_kernels.h"
#include "core/kernels/norm_kernels.h"
#include "core/kernels/parallel.h"

namespace lockstep::core {
namespace {

float* floats(const at::Tensor& t) { return t.data_ptr<float>(); }
const std::byte* bytes_of(const at::Tensor& t) {
  return static_cast<const std::byte*>(t.const_data_ptr());
}

// The rows that are alike in every column: what is allocated, and which kernel works on what.
// `Column` says where, and how rows are spread:
//   On                       the kernels' template argument
//   rows(n, width, body)     body(begin, end) for ranges of n rows of `width` elements
//   sums(n, sums, body)      body(begin, end, parts) adds rows into parts[i], which go to sums[i]
template <typename Column, typename On = typename Column::On>
class KernelColumn : public Kernels {
 public:
  at::Tensor add_rms_norm_(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& w,
                           double eps, at::Tensor& scale, float offset) const override {
    at::Tensor y = at::empty_like(x);
    norm(x, residual, w, y, scale, 0, 1, eps, offset);
    return y;
  }
  at::Tensor rms_norm_back(at::Tensor dy, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& scale, const at::Tensor& residual,
                           const at::Tensor& dw_sum, float offset) const override {
    norm_back(dy, x, w, scale, residual, dw_sum, 0, 1, offset);
    return dy;
  }
  void head_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& y, at::Tensor& scale,
                 int64_t first_column, int64_t heads, double eps, float offset) const override {
    norm(x, {}, w, y, scale, first_column, heads, eps, offset);
  }
  void head_norm_back(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                      const at::Tensor& scale, const at::Tensor& dw_sum, int64_t first_column,
                      int64_t heads, float offset) const override {
    norm_back(dy, x, w, scale, {}, dw_sum, first_column, heads, offset);
  }

  at::Tensor add_layer_norm_(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& w,
                             const at::Tensor& b, double eps, at::Tensor& stats) const override {
    check_same_shape(x, residual);
    at::Tensor y = at::empty_like(x);
    stats = at::empty({x.size(0), 2}, x.options().dtype(at::kFloat));
    const int64_t dim = x.size(1);
    by_type(x, [&](auto* t) {
      Column::rows(x.size(0), dim, [&](int64_t begin, int64_t end) {
        layer_norm_forward<On>(ptr(t, x) + begin * dim, ptr(t, residual, begin * dim), ptr(t, w),
                               ptr(t, b), ptr(t, y) + begin * dim, floats(stats) + 2 * begin,
                               end - begin, dim, static_cast<float>(eps));
      });
    });
    return y;
  }
  at::Tensor layer_norm_back(at::Tensor dy, const at::Tensor& x, const at::Tensor& w,
                             const at::Tensor& stats, const at::Tensor& residual,
                             const at::Tensor& dw_sum, const at::Tensor& db_sum) const override {
    const int64_t dim = x.size(1);
    by_type(x, [&](auto* t) {
      Column::sums(x.size(0), {dw_sum, db_sum}, [&](int64_t begin, int64_t end, float** sums) {
        auto* const d = ptr(t, dy) + begin * dim;
        layer_norm_backward<On>(d, ptr(t, x) + begin * dim, ptr(t, w), floats(stats) + 2 * begin,
                                ptr(t, residual, begin * dim), d, sums[0], sums[1], end - begin,
                                dim);
      });
    });
    return dy;
  }

  void rotate_rows(const at::Tensor& x, const RotaryTable& table, const at::Tensor& positions,
                   int64_t heads, int64_t head_dim, float direction) const override {
    LOCKSTEP_CHECK(positions.size(0) == x.size(0), positions.size(0), " positions of ", x.size(0));
    by_type(x, [&](auto* t) {
      Column::rows(x.size(0), heads * head_dim, [&](int64_t begin, int64_t end) {
        rotate_heads<On>(ptr(t, x) + begin * x.size(1), floats(table.cos_TH), floats(table.sin_TH),
                         positions.data_ptr<int64_t>() + begin, end - begin, heads, head_dim,
                         x.size(1), direction);
      });
    });
  }
  at::Tensor swiglu(const at::Tensor& gate_up) const override {
    return gated(gate_up, [](auto* gate, auto* y, int64_t rows, int64_t dim) {
      swiglu_forward<On>(gate, y, rows, dim);
    });
  }
  at::Tensor swiglu_back(const at::Tensor& dy, at::Tensor gate_up) const override {
    gated_back(dy, gate_up, [](auto* d, auto* gate, int64_t rows, int64_t dim) {
      swiglu_backward<On>(d, gate, rows, dim);
    });
    return gate_up;
  }
  at::Tensor geglu(const at::Tensor& gate_up) const override {
    return gated(gate_up, [](auto* gate, auto* y, int64_t rows, int64_t dim) {
      geglu_forward<On>(gate, y, rows, dim);
    });
  }
  at::Tensor geglu_back(const at::Tensor& dy, at::Tensor gate_up) const override {
    gated_back(dy, gate_up, [](auto* d, auto* gate, int64_t rows, int64_t dim) {
      geglu_backward<On>(d, gate, rows, dim);
    });
    return gate_up;
  }
  at::Tensor gelu_new(const at::Tensor& x) const override {
    at::Tensor y = at::empty_like(x);
    by_type(x, [&](auto* t) {
      Column::rows(x.numel(), 1, [&](int64_t begin, int64_t end) {
        gelu_forward<On>(ptr(t, x) + begin, ptr(t, y) + begin, end - begin);
      });
    });
    return y;
  }
  at::Tensor gelu_new_back(const at::Tensor& dy, at::Tensor x) const override {
    by_type(x, [&](auto* t) {
      Column::rows(x.numel(), 1, [&](int64_t begin, int64_t end) {
        gelu_backward<On>(ptr(t, dy) + begin, ptr(t, x) + begin, end - begin);
      });
    });
    return x;
  }
  void soft_cap(const at::Tensor& x, float scale, float cap) const override {
    by_type(x, [&](auto* t) {
      Column::rows(x.numel(), 1, [&](int64_t begin, int64_t end) {
        soft_cap_forward<On>(ptr(t, x) + begin, end - begin, scale, cap);
      });
    });
  }
  void soft_cap_back(const at::Tensor& y, const at::Tensor& dy, float scale,
                     float cap) const override {
    by_type(y, [&](auto* t) {
      Column::rows(y.numel(), 1, [&](int64_t begin, int64_t end) {
        soft_cap_backward<On>(ptr(t, y) + begin, ptr(t, dy) + begin, end - begin, scale, cap);
      });
    });
  }
  // Drawing costs about four times an element.
  void dropout(const at::Tensor& x, const DropoutDraw& draw) const override {
    const int64_t n = x.numel(), runs = (n + kDropoutRun - 1) / kDropoutRun;
    by_type(x, [&](auto* t) {
      Column::rows(runs, 4 * kDropoutRun, [&](int64_t begin, int64_t end) {
        const int64_t first = begin * kDropoutRun;
        core::dropout<On>(ptr(t, x) + first, first, std::min(n, end * kDropoutRun) - first, draw);
      });
    });
  }

  void softmax_of_seen(const at::Tensor& scores, const ScoreBlock& block,
                       float scale) const override {
    const int64_t size = block.rows * block.keys;
    by_type(scores, [&](auto* t) {
      Column::rows(scores.size(0), size, [&](int64_t begin, int64_t end) {
        masked_softmax<On>(ptr(t, scores) + begin * size, end - begin, block, scale);
      });
    });
  }
  void softmax_of_seen_back(const at::Tensor& p, const at::Tensor& dp, const ScoreBlock& block,
                            float scale) const override {
    const int64_t size = block.rows * block.keys;
    by_type(p, [&](auto* t) {
      Column::rows(p.size(0), size, [&](int64_t begin, int64_t end) {
        masked_softmax_backward<On>(ptr(t, p) + begin * size, ptr(t, dp) + begin * size,
                                    end - begin, block, scale);
      });
    });
  }
  void cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const TokenLoss& loss,
                     float dy, bool want_gradients, const at::Tensor& losses) const override {
    const int64_t vocab = logits.size(1);
    by_type(logits, [&](auto* t) {
      Column::rows(logits.size(0), vocab, [&](int64_t begin, int64_t end) {
        core::cross_entropy<On>(ptr(t, logits) + begin * vocab, labels.data_ptr<int64_t>() + begin,
                                end - begin, vocab, loss, dy, want_gradients,
                                losses.data_ptr<double>() + begin);
      });
    });
  }

  void add_columns(const at::Tensor& sum, const at::Tensor& dy,
                   int64_t first_column) const override {
    const int64_t columns = sum.numel(), stride = dy.size(1);
    by_type(dy, [&](auto* t) {
      Column::sums(dy.size(0), {sum}, [&](int64_t begin, int64_t end, float** sums) {
        core::add_columns<On>(sums[0], ptr(t, dy) + begin * stride + first_column, end - begin,
                              columns, stride);
      });
    });
  }
  void fold(const at::Tensor& out, std::span<const at::Tensor> parts,
            std::span<const at::Tensor> sums) const override {
    LOCKSTEP_CHECK(std::has_single_bit(parts.size()), parts.size());
    LOCKSTEP_CHECK(sums.empty() || sums.front().data_ptr() == out.data_ptr(), "the first sum");
    by_type(parts.front(), [&](auto* t) {
      FoldTerms<std::remove_pointer_t<decltype(t)>> terms;
      for (const at::Tensor& part : parts) terms.add_part(ptr(t, part));
      for (const at::Tensor& sum : sums) terms.add_sum(floats(sum));
      core::fold<On>(floats(out), terms, out.numel());
    });
  }
  void narrow(const at::Tensor& out, const at::Tensor& in) const override {
    core::narrow<On>(ptr(static_cast<Bf16*>(nullptr), out), floats(in), in.numel());
  }
  void adamw_update(const AdamWStep& step, std::span<const AdamWRun<float>> runs) const override {
    core::adamw_update<On>(step, runs);
  }
  void adamw_update(const AdamWStep& step, std::span<const AdamWRun<Bf16>> runs) const override {
    core::adamw_update<On>(step, runs);
  }
  void scale_and_square_tiles(float* grad, float scale, int64_t tiles,
                              double* sums_out) const override {
    core::scale_and_square_tiles<On>(grad, scale, tiles, sums_out);
  }
  void sum_subtrees(const at::Tensor& leaves, std::span<const layout::SlotRun> runs,
                    const at::Tensor& sums) const override {
    LOCKSTEP_CHECK(std::ssize(runs) <= sums.numel(), runs.size(), " sums in ", sums.numel());
    core::sum_subtrees<On>(leaves.const_data_ptr<double>(), runs, sums.data_ptr<double>());
  }
  void draw_initial(const at::Tensor& out, const InitialDraw& draw) const override {
    core::draw_initial<On>(draw, floats(out), out.numel());
  }
  void muon_momentum(const MuonStep& step, const float* grad, float* m, at::BFloat16* out,
                     int64_t n) const override {
    core::muon_momentum<On>(step, grad, m, reinterpret_cast<Bf16*>(out), n);
  }
  void muon_update(const MuonStep& step, const at::BFloat16* update, float* master, Bf16* copy,
                   int64_t n) const override {
    core::muon_update<On>(step, reinterpret_cast<const Bf16*>(update), master, copy, n);
  }
  void to_unit_norm(const at::Tensor& x, double least) const override {
    at::Tensor(x).div_(at::norm(x).clamp_min_(least));
  }

 private:
  // activation(gate) * up: what the activations with a gate share.
  template <typename F>
  static at::Tensor gated(const at::Tensor& gate_up, F&& forward) {
    const int64_t dim = gate_up.size(1) / 2;
    at::Tensor y = at::empty({gate_up.size(0), dim}, gate_up.options());
    by_type(y, [&](auto* t) {
      Column::rows(y.size(0), dim, [&](int64_t begin, int64_t end) {
        forward(ptr(t, gate_up) + begin * 2 * dim, ptr(t, y) + begin * dim, end - begin, dim);
      });
    });
    return y;
  }
  template <typename F>
  static void gated_back(const at::Tensor& dy, const at::Tensor& gate_up, F&& backward) {
    const int64_t dim = dy.size(1);
    by_type(dy, [&](auto* t) {
      Column::rows(dy.size(0), dim, [&](int64_t begin, int64_t end) {
        backward(ptr(t, dy) + begin * dim, ptr(t, gate_up) + begin * 2 * dim, end - begin, dim);
      });
    });
  }
  static void check_same_shape(const at::Tensor& x, const at::Tensor& residual) {
    LOCKSTEP_CHECK(!residual.defined() || residual.sizes() == x.sizes(), residual.sizes());
  }
  static void norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& w,
                   const at::Tensor& y, at::Tensor& scale, int64_t first_column, int64_t heads,
                   double eps, float offset) {
    check_same_shape(x, residual);
    scale = at::empty({x.size(0), heads}, x.options().dtype(at::kFloat));
    const int64_t dim = w.size(0), stride = x.size(1);
    by_type(x, [&](auto* t) {
      Column::rows(x.size(0), heads * dim, [&](int64_t begin, int64_t end) {
        const int64_t at = begin * stride + first_column;
        rms_norm_forward<On>(ptr(t, x) + at, ptr(t, residual, at), ptr(t, w), ptr(t, y) + at,
                             floats(scale) + begin * heads, end - begin, heads, dim, stride,
                             static_cast<float>(eps), offset);
      });
    });
  }
  static void norm_back(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                        const at::Tensor& scale, const at::Tensor& residual,
                        const at::Tensor& dw_sum, int64_t first_column, int64_t heads,
                        float offset) {
    const int64_t stride = x.size(1);
    by_type(x, [&](auto* t) {
      Column::sums(x.size(0), {dw_sum}, [&](int64_t begin, int64_t end, float** sums) {
        const int64_t at = begin * stride + first_column;
        auto* const d = ptr(t, dy) + at;
        rms_norm_backward<On>(d, ptr(t, x) + at, ptr(t, w), floats(scale) + begin * heads,
                              ptr(t, residual, at), d, sums[0], end - begin, heads, w.size(0),
                              stride, offset);
      });
    });
  }
};

using Sums = std::initializer_list<at::Tensor>;
constexpr size_t kMostSums = 2;

struct CpuColumn {
  using On = OnCpu;
  static constexpr int64_t kPartRows = 64;

  template <typename F>
  static void rows(int64_t n, int64_t width, F&& body) {
    parallel_rows(n, width, std::forward<F>(body));
  }
  // Parts are of fixed size and are added in order: threads change nothing.
  template <typename F>
  static void sums(int64_t rows, Sums sums, F&& body) {
    const int64_t width = sums.begin()->numel(), count = std::ssize(sums);
    const int64_t parts = (rows + kPartRows - 1) / kPartRows;
    const at::Tensor partials = at::zeros({parts, count, width}, at::kFloat);
    parallel_ranges(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        float* const first = floats(partials) + part * count * width;
        float* own[kMostSums] = {first, first + width};
        body(part * kPartRows, std::min(rows, (part + 1) * kPartRows), own);
      }
    });
    const float* from = floats(partials);
    for (int64_t part = 0; part < parts; ++part)
      for (const at::Tensor& sum : sums) {
        add_to<OnCpu>(floats(sum), from, width);
        from += width;
      }
  }
};

class CpuKernels : public KernelColumn<CpuColumn> {
 public:
  layout::WorkSizes work_sizes() const override { return layout::WorkSizes::kCpu; }
  // Threads share a run's tiles.
  void digest_runs(const at::Tensor& flat, std::span<const DigestRun> runs,
                   const at::Tensor& sums) const override {
    constexpr int64_t kTile = layout::kTileElements, kGrainTiles = 16;
    const auto size = static_cast<size_t>(flat.element_size());
    auto* const out = reinterpret_cast<uint64_t*>(sums.data_ptr<int64_t>());
    for (size_t r = 0; r < runs.size(); ++r) {
      const std::span run(bytes_of(flat) + static_cast<size_t>(runs[r].first) * size,
                          static_cast<size_t>(runs[r].length) * size);
      std::atomic<uint64_t> sum = 0;
      parallel_ranges((runs[r].length + kTile - 1) / kTile, kGrainTiles,
                      [&](int64_t begin, int64_t end) {
                        const auto at = static_cast<size_t>(begin * kTile);
                        const auto count = static_cast<size_t>((end - begin) * kTile);
                        const auto part =
                            run.subspan(at * size, std::min(count * size, run.size() - at * size));
                        sum += digest_of_tiles(part, size, runs[r].seed + at);
                      });
      out[r] = sum;
    }
  }
  at::Tensor attention(const AttentionShape& shape, const at::Tensor& qkv,
                       const Documents& documents, AttentionKept& kept) const override {
    return attend(*this, shape, qkv, documents, kept);
  }
  at::Tensor attention_back(const AttentionShape& shape, const at::Tensor& d_out,
                            const at::Tensor& qkv, const Documents& documents,
                            const AttentionKept& kept) const override {
    return attend_back(*this, shape, d_out, qkv, documents, kept);
  }
  // Threads share the columns.
  void add_rows(const at::Tensor& sum, const at::Tensor& dy,
                const at::Tensor& to_row) const override {
    constexpr int64_t kColumnGrain = 64;
    const int64_t dim = dy.size(1), rows = dy.size(0);
    LOCKSTEP_CHECK(sum.size(1) == dim && sum.is_contiguous(), sum.size(1), " ", dim);
    by_type(dy, [&](auto* t) {
      const auto* const from = ptr(t, dy);
      float* const to = floats(sum);
      const int64_t* const row = to_row.data_ptr<int64_t>();
      parallel_ranges(dim, kColumnGrain, [&](int64_t begin, int64_t end) {
        for (int64_t r = 0; r < rows; ++r)
          core::add_to<OnCpu>(to + row[r] * dim + begin, from + r * dim + begin, end - begin);
      });
    });
  }
  void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) const override {
    sum.addmm_(a.to(at::kFloat), b.to(at::kFloat));
  }
};

#ifdef LOCKSTEP_CUDA

struct CudaColumn {
  using On = OnCuda;
  template <typename F>
  static void rows(int64_t n, int64_t, F&& body) {
    body(0, n);
  }
  template <typename F>
  static void sums(int64_t rows, Sums sums, F&& body) {
    float* own[kMostSums] = {floats(*sums.begin()), floats(*(sums.end() - 1))};
    body(0, rows, own);
  }
};

class CudaKernels : public KernelColumn<CudaColumn> {
 public:
  layout::WorkSizes work_sizes() const override { return layout::WorkSizes::kGpu; }
  at::Tensor attention(const AttentionShape& shape, const at::Tensor& qkv,
                       const Documents& documents, AttentionKept& kept) const override {
    if (cudnn_applies(shape, qkv, documents)) return cudnn_attention(shape, qkv, documents, kept);
    if (flash_applies(shape, qkv)) return flash_attention(shape, qkv, documents, kept);
    return attend(*this, with_whole_scores(shape), qkv, documents, kept);
  }
  at::Tensor attention_back(const AttentionShape& shape, const at::Tensor& d_out,
                            const at::Tensor& qkv, const Documents& documents,
                            const AttentionKept& kept) const override {
    if (cudnn_applies(shape, qkv, documents))
      return cudnn_attention_back(shape, d_out, qkv, documents, kept);
    if (flash_applies(shape, qkv)) return flash_attention_back(shape, d_out, qkv, documents, kept);
    return attend_back(*this, with_whole_scores(shape), d_out, qkv, documents, kept);
  }
  void digest_runs(const at::Tensor& flat, std::span<const DigestRun> runs,
                   const at::Tensor& sums) const override {
    digest_runs_on_cuda(bytes_of(flat), static_cast<size_t>(flat.element_size()), runs,
                        reinterpret_cast<uint64_t*>(sums.data_ptr<int64_t>()));
  }
  // A stable sort brings the rows of a token together, in row order.
  void add_rows(const at::Tensor& sum, const at::Tensor& dy,
                const at::Tensor& to_row) const override {
    const auto [sorted, order] = at::sort(to_row, /*stable=*/true, /*dim=*/0, /*descending=*/false);
    const int64_t *const tokens = sorted.data_ptr<int64_t>(), *const rows =
                                                                  order.data_ptr<int64_t>();
    by_type(dy, [&](auto* t) {
      add_rows_by_token(floats(sum), ptr(t, dy), tokens, rows, dy.size(0), dy.size(1));
    });
  }
  void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) const override {
    if (a.scalar_type() == at::kFloat) {
      sum.addmm_(a, b);
    } else {
      at::Tensor out = sum;
      at::addmm_out(out, sum, a, b, at::kFloat);
    }
  }

 private:
  static AttentionShape with_whole_scores(AttentionShape shape) {
    shape.fused = false;
    return shape;
  }
};

#else
using CudaKernels = CpuKernels;  // no tensor lies elsewhere
#endif

const Kernels* added = nullptr;  // of added_type
at::DeviceType added_type = at::kCPU;

}  // namespace

const Kernels& kernels_on(at::Device device) {
  static const CpuKernels cpu;
  static const CudaKernels cuda;
  if (device.is_cpu()) return cpu;
  if (device.type() == added_type) return *added;
  return cuda;
}

std::vector<uint64_t> digests_of(const at::Tensor& flat, std::span<const DigestRun> runs) {
  if (runs.empty()) return {};
  const at::Tensor sums = at::empty({std::ssize(runs)}, flat.options().dtype(at::kLong));
  kernels_on(flat).digest_runs(flat, runs, sums);
  const at::Tensor host = sums.cpu();
  const int64_t* const words = host.const_data_ptr<int64_t>();
  return {words, words + runs.size()};
}

void add_kernels(at::DeviceType type, const Kernels& kernels) {
  added_type = type;
  added = &kernels;
}

}  // namespace lockstep::core
