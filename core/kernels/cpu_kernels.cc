#include "core/kernels/cpu_kernels.h"

#include "core/kernels/add_kernels.h"
#include "core/kernels/element_type.h"
#include "core/kernels/elementwise_kernels.h"
#include "core/kernels/norm_kernels.h"
#include "core/kernels/parallel.h"

namespace lockstep::core {
namespace {

constexpr int64_t kPartRows = 64;
constexpr int64_t kColumnGrain = 64, kDropoutGrain = 64;  // of add_rows; runs of dropout
constexpr int64_t kGrainLogits = 32768;                   // worth a thread's while

// Sums over rows, into each of `sums` [C] (fp32): body(begin, end, partial) adds rows of a part
// into partial [sums, C]. Parts are of fixed size and are added in order: threads change nothing.
template <typename F>
void sum_over_rows(int64_t rows, std::initializer_list<at::Tensor> sums, F&& body) {
  const int64_t width = sums.begin()->numel(), count = static_cast<int64_t>(sums.size());
  const int64_t parts = (rows + kPartRows - 1) / kPartRows;
  at::Tensor partials = at::zeros({parts, count, width}, at::kFloat);
  float* const partial = partials.data_ptr<float>();
  parallel_ranges(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      body(part * kPartRows, std::min(rows, (part + 1) * kPartRows),
           partial + part * count * width);
  });
  for (int64_t part = 0; part < parts; ++part) {
    const float* from = partial + part * count * width;
    for (const at::Tensor& sum : sums) {
      core::add_to(sum.data_ptr<float>(), from, width);
      from += width;
    }
  }
}

template <typename T>
const T* row_or_null(T* type, const at::Tensor& t, int64_t row) {
  return t.defined() ? ptr(type, t) + row * t.size(1) : nullptr;
}

float* floats(const at::Tensor& t) { return t.data_ptr<float>(); }

class CpuKernels : public Kernels {
 public:
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w, double eps,
                      at::Tensor& scale) const override {
    at::Tensor y = at::empty_like(x);
    scale = at::empty({x.size(0)}, at::kFloat);
    const int64_t dim = x.size(1);
    by_type(x, [&](auto* t) {
      parallel_rows(x.size(0), dim, [&](int64_t begin, int64_t end) {
        rms_norm_forward(ptr(t, x) + begin * dim, ptr(t, w), ptr(t, y) + begin * dim,
                         floats(scale) + begin, end - begin, 1, dim, dim, static_cast<float>(eps));
      });
    });
    return y;
  }

  at::Tensor rms_norm_back(at::Tensor dy, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& scale, const at::Tensor& residual,
                           const at::Tensor& dw_sum) const override {
    const int64_t dim = x.size(1);
    by_type(x, [&](auto* t) {
      sum_over_rows(x.size(0), {dw_sum}, [&](int64_t begin, int64_t end, float* dw) {
        auto* const d = ptr(t, dy) + begin * dim;
        rms_norm_backward(d, ptr(t, x) + begin * dim, ptr(t, w), floats(scale) + begin,
                          row_or_null(t, residual, begin), d, dw, end - begin, 1, dim, dim);
      });
    });
    return dy;
  }

  void head_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& y, at::Tensor& scale,
                 int64_t first_column, int64_t heads, double eps) const override {
    scale = at::empty({x.size(0), heads}, at::kFloat);
    const int64_t stride = x.size(1);
    by_type(x, [&](auto* t) {
      parallel_rows(x.size(0), heads * w.size(0), [&](int64_t begin, int64_t end) {
        const int64_t at = begin * stride + first_column;
        rms_norm_forward(ptr(t, x) + at, ptr(t, w), ptr(t, y) + at, floats(scale) + begin * heads,
                         end - begin, heads, w.size(0), stride, static_cast<float>(eps));
      });
    });
  }

  void head_norm_back(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                      const at::Tensor& scale, const at::Tensor& dw_sum, int64_t first_column,
                      int64_t heads) const override {
    const int64_t stride = x.size(1);
    by_type(x, [&](auto* t) {
      sum_over_rows(x.size(0), {dw_sum}, [&](int64_t begin, int64_t end, float* dw) {
        const int64_t at = begin * stride + first_column;
        auto* const d = ptr(t, dy) + at;
        rms_norm_backward(d, ptr(t, x) + at, ptr(t, w), floats(scale) + begin * heads,
                          decltype(d){nullptr}, d, dw, end - begin, heads, w.size(0), stride);
      });
    });
  }

  at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps,
                        at::Tensor& stats) const override {
    at::Tensor y = at::empty_like(x);
    stats = at::empty({x.size(0), 2}, at::kFloat);
    const int64_t dim = x.size(1);
    by_type(x, [&](auto* t) {
      parallel_rows(x.size(0), dim, [&](int64_t begin, int64_t end) {
        layer_norm_forward(ptr(t, x) + begin * dim, ptr(t, w), ptr(t, b), ptr(t, y) + begin * dim,
                           floats(stats) + 2 * begin, end - begin, dim, static_cast<float>(eps));
      });
    });
    return y;
  }

  at::Tensor layer_norm_back(at::Tensor dy, const at::Tensor& x, const at::Tensor& w,
                             const at::Tensor& stats, const at::Tensor& residual,
                             const at::Tensor& dw_sum, const at::Tensor& db_sum) const override {
    const int64_t dim = x.size(1);
    by_type(x, [&](auto* t) {
      sum_over_rows(x.size(0), {dw_sum, db_sum}, [&](int64_t begin, int64_t end, float* sums) {
        auto* const d = ptr(t, dy) + begin * dim;
        layer_norm_backward(d, ptr(t, x) + begin * dim, ptr(t, w), floats(stats) + 2 * begin,
                            row_or_null(t, residual, begin), d, sums, sums + dim, end - begin, dim);
      });
    });
    return dy;
  }

  void rotate_rows(const at::Tensor& x, const RotaryTable& table, const at::Tensor& positions,
                   int64_t heads, int64_t head_dim, float direction) const override {
    LOCKSTEP_CHECK(positions.size(0) == x.size(0), positions.size(0), " positions of ", x.size(0));
    by_type(x, [&](auto* t) {
      parallel_rows(x.size(0), heads * head_dim, [&](int64_t begin, int64_t end) {
        rotate_heads(ptr(t, x) + begin * x.size(1), floats(table.cos_TH), floats(table.sin_TH),
                     positions.data_ptr<int64_t>() + begin, end - begin, heads, head_dim, x.size(1),
                     direction);
      });
    });
  }

  at::Tensor swiglu(const at::Tensor& gate_up) const override {
    const int64_t dim = gate_up.size(1) / 2;
    at::Tensor y = at::empty({gate_up.size(0), dim}, gate_up.options());
    by_type(y, [&](auto* t) {
      parallel_rows(y.size(0), dim, [&](int64_t begin, int64_t end) {
        swiglu_forward(ptr(t, gate_up) + begin * 2 * dim, ptr(t, y) + begin * dim, end - begin,
                       dim);
      });
    });
    return y;
  }

  at::Tensor swiglu_back(const at::Tensor& dy, at::Tensor gate_up) const override {
    const int64_t dim = dy.size(1);
    by_type(dy, [&](auto* t) {
      parallel_rows(dy.size(0), dim, [&](int64_t begin, int64_t end) {
        swiglu_backward(ptr(t, dy) + begin * dim, ptr(t, gate_up) + begin * 2 * dim, end - begin,
                        dim);
      });
    });
    return gate_up;
  }

  at::Tensor gelu_new(const at::Tensor& x) const override {
    at::Tensor y = at::empty_like(x);
    by_type(x, [&](auto* t) {
      parallel_rows(x.numel(), 1, [&](int64_t begin, int64_t end) {
        gelu_forward(ptr(t, x) + begin, ptr(t, y) + begin, end - begin);
      });
    });
    return y;
  }

  at::Tensor gelu_new_back(const at::Tensor& dy, at::Tensor x) const override {
    by_type(x, [&](auto* t) {
      parallel_rows(x.numel(), 1, [&](int64_t begin, int64_t end) {
        gelu_backward(ptr(t, dy) + begin, ptr(t, x) + begin, end - begin);
      });
    });
    return x;
  }

  void dropout(const at::Tensor& x, const DropoutDraw& draw) const override {
    const int64_t n = x.numel(), runs = (n + kDropoutRun - 1) / kDropoutRun;
    by_type(x, [&](auto* t) {
      parallel_ranges(runs, kDropoutGrain, [&](int64_t begin, int64_t end) {
        const int64_t first = begin * kDropoutRun;
        core::dropout(ptr(t, x) + first, first, std::min(n, end * kDropoutRun) - first, draw);
      });
    });
  }

  at::Tensor attention(const AttentionShape& shape, const at::Tensor& qkv,
                       const Documents& documents, AttentionKept& kept) const override {
    return core::attention(shape, qkv, documents, kept);
  }
  at::Tensor attention_back(const AttentionShape& shape, const at::Tensor& d_out,
                            const at::Tensor& qkv, const Documents& documents,
                            const AttentionKept& kept) const override {
    return core::attention_back(shape, d_out, qkv, documents, kept);
  }

  void cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const TokenLoss& loss,
                     float dy, bool want_gradients, const at::Tensor& losses) const override {
    const int64_t vocab = logits.size(1);
    by_type(logits, [&](auto* t) {
      const int64_t grain = std::max<int64_t>(1, kGrainLogits / vocab);
      parallel_ranges(logits.size(0), grain, [&](int64_t begin, int64_t end) {
        core::cross_entropy(ptr(t, logits) + begin * vocab, labels.data_ptr<int64_t>() + begin,
                            end - begin, vocab, loss, dy, want_gradients,
                            losses.data_ptr<double>() + begin);
      });
    });
  }

  void add_columns(const at::Tensor& sum, const at::Tensor& dy,
                   int64_t first_column) const override {
    const int64_t columns = sum.numel(), stride = dy.size(1);
    by_type(dy, [&](auto* t) {
      sum_over_rows(dy.size(0), {sum}, [&](int64_t begin, int64_t end, float* partial) {
        for (int64_t r = begin; r < end; ++r)
          core::add_to(partial, ptr(t, dy) + r * stride + first_column, columns);
      });
    });
  }

  // Threads share the columns.
  void add_rows(const at::Tensor& sum, const at::Tensor& dy,
                const at::Tensor& to_row) const override {
    const int64_t dim = dy.size(1), rows = dy.size(0);
    LOCKSTEP_CHECK(sum.size(1) == dim && sum.is_contiguous(), sum.size(1), " ", dim);
    by_type(dy, [&](auto* t) {
      const auto* const from = ptr(t, dy);
      float* const to = floats(sum);
      const int64_t* const row = to_row.data_ptr<int64_t>();
      parallel_ranges(dim, kColumnGrain, [&](int64_t begin, int64_t end) {
        for (int64_t r = 0; r < rows; ++r)
          core::add_to(to + row[r] * dim + begin, from + r * dim + begin, end - begin);
      });
    });
  }

  void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) const override {
    sum.addmm_(a.to(at::kFloat), b.to(at::kFloat));
  }

  void add_to(const at::Tensor& sum, const at::Tensor& part) const override {
    by_type(part, [&](auto* t) { core::add_to(floats(sum), ptr(t, part), sum.numel()); });
  }
  void set_to(const at::Tensor& sum, const at::Tensor& part) const override {
    if (part.scalar_type() == at::kFloat) {
      sum.copy_(part);
    } else {
      widen(floats(sum), ptr(static_cast<Bf16*>(nullptr), part), sum.numel());
    }
  }
  void narrow(const at::Tensor& out, const at::Tensor& in) const override {
    core::narrow(ptr(static_cast<Bf16*>(nullptr), out), floats(in), in.numel());
  }
  void adamw_update(const AdamWStep& step, bool decay, const float* grad, float* master, float* m,
                    float* v, int64_t n) const override {
    core::adamw_update(step, decay, grad, master, m, v, n);
  }
  void scale_and_square_tiles(float* grad, float scale, int64_t tiles,
                              double* sums_out) const override {
    core::scale_and_square_tiles(grad, scale, tiles, sums_out);
  }
};

}  // namespace

const Kernels& cpu_kernels() {
  static const CpuKernels column;
  return column;
}

}  // namespace lockstep::core
