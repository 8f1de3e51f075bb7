#include "core/kernels/cuda_kernels.h"

#include "core/kernels/add_kernels.h"
#include "core/kernels/cuda_attention.h"
#include "core/kernels/element_type.h"
#include "core/kernels/elementwise_kernels.h"
#include "core/kernels/norm_kernels.h"

namespace lockstep::core {
namespace {

at::Tensor fp32(at::IntArrayRef shape, const at::Tensor& like) {
  return at::empty(shape, like.options().dtype(at::kFloat));
}

float* floats(const at::Tensor& t) { return t.data_ptr<float>(); }

// Functions are named with their namespace: by their arguments the CPU's would be found as well.
class CudaKernels : public Kernels {
 public:
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w, double eps,
                      at::Tensor& scale) const override {
    at::Tensor y = at::empty_like(x);
    scale = fp32({x.size(0)}, x);
    by_type(x, [&](auto* t) {
      cuda::rms_norm_forward(ptr(t, x), ptr(t, w), ptr(t, y), floats(scale), x.size(0), 1,
                             x.size(1), x.size(1), static_cast<float>(eps));
    });
    return y;
  }

  at::Tensor rms_norm_back(at::Tensor dy, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& scale, const at::Tensor& residual,
                           const at::Tensor& dw_sum) const override {
    by_type(x, [&](auto* t) {
      cuda::rms_norm_backward(ptr(t, dy), ptr(t, x), ptr(t, w), floats(scale), ptr(t, residual),
                              ptr(t, dy), floats(dw_sum), x.size(0), 1, x.size(1), x.size(1));
    });
    return dy;
  }

  void head_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& y, at::Tensor& scale,
                 int64_t first_column, int64_t heads, double eps) const override {
    scale = fp32({x.size(0), heads}, x);
    by_type(x, [&](auto* t) {
      cuda::rms_norm_forward(ptr(t, x) + first_column, ptr(t, w), ptr(t, y) + first_column,
                             floats(scale), x.size(0), heads, w.size(0), x.size(1),
                             static_cast<float>(eps));
    });
  }

  void head_norm_back(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                      const at::Tensor& scale, const at::Tensor& dw_sum, int64_t first_column,
                      int64_t heads) const override {
    by_type(x, [&](auto* t) {
      auto* const d = ptr(t, dy) + first_column;
      cuda::rms_norm_backward(d, ptr(t, x) + first_column, ptr(t, w), floats(scale),
                              decltype(d){nullptr}, d, floats(dw_sum), x.size(0), heads, w.size(0),
                              x.size(1));
    });
  }

  at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps,
                        at::Tensor& stats) const override {
    at::Tensor y = at::empty_like(x);
    stats = fp32({x.size(0), 2}, x);
    by_type(x, [&](auto* t) {
      cuda::layer_norm_forward(ptr(t, x), ptr(t, w), ptr(t, b), ptr(t, y), floats(stats), x.size(0),
                               x.size(1), static_cast<float>(eps));
    });
    return y;
  }

  at::Tensor layer_norm_back(at::Tensor dy, const at::Tensor& x, const at::Tensor& w,
                             const at::Tensor& stats, const at::Tensor& residual,
                             const at::Tensor& dw_sum, const at::Tensor& db_sum) const override {
    by_type(x, [&](auto* t) {
      cuda::layer_norm_backward(ptr(t, dy), ptr(t, x), ptr(t, w), floats(stats), ptr(t, residual),
                                ptr(t, dy), floats(dw_sum), floats(db_sum), x.size(0), x.size(1));
    });
    return dy;
  }

  void rotate_rows(const at::Tensor& x, const RotaryTable& table, const at::Tensor& positions,
                   int64_t heads, int64_t head_dim, float direction) const override {
    LOCKSTEP_CHECK(positions.size(0) == x.size(0), positions.size(0), " positions of ", x.size(0));
    by_type(x, [&](auto* t) {
      cuda::rotate_heads(ptr(t, x), floats(table.cos_TH), floats(table.sin_TH),
                         positions.data_ptr<int64_t>(), x.size(0), heads, head_dim, x.size(1),
                         direction);
    });
  }

  at::Tensor swiglu(const at::Tensor& gate_up) const override {
    const int64_t dim = gate_up.size(1) / 2;
    at::Tensor y = at::empty({gate_up.size(0), dim}, gate_up.options());
    by_type(y, [&](auto* t) { cuda::swiglu_forward(ptr(t, gate_up), ptr(t, y), y.size(0), dim); });
    return y;
  }

  at::Tensor swiglu_back(const at::Tensor& dy, at::Tensor gate_up) const override {
    by_type(dy, [&](auto* t) {
      cuda::swiglu_backward(ptr(t, dy), ptr(t, gate_up), dy.size(0), dy.size(1));
    });
    return gate_up;
  }

  at::Tensor gelu_new(const at::Tensor& x) const override {
    at::Tensor y = at::empty_like(x);
    by_type(x, [&](auto* t) { cuda::gelu_forward(ptr(t, x), ptr(t, y), x.numel()); });
    return y;
  }

  at::Tensor gelu_new_back(const at::Tensor& dy, at::Tensor x) const override {
    by_type(x, [&](auto* t) { cuda::gelu_backward(ptr(t, dy), ptr(t, x), x.numel()); });
    return x;
  }

  void dropout(const at::Tensor& x, const DropoutDraw& draw) const override {
    by_type(x, [&](auto* t) { cuda::dropout(ptr(t, x), 0, x.numel(), draw); });
  }

  at::Tensor attention(const AttentionShape& shape, const at::Tensor& qkv,
                       const Documents& documents, AttentionKept& kept) const override {
    return cuda::attention(shape, qkv, documents, kept);
  }
  at::Tensor attention_back(const AttentionShape& shape, const at::Tensor& d_out,
                            const at::Tensor& qkv, const Documents& documents,
                            const AttentionKept& kept) const override {
    return cuda::attention_back(shape, d_out, qkv, documents, kept);
  }

  void cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const TokenLoss& loss,
                     float dy, bool want_gradients, const at::Tensor& losses) const override {
    by_type(logits, [&](auto* t) {
      cuda::cross_entropy(ptr(t, logits), labels.data_ptr<int64_t>(), logits.size(0),
                          logits.size(1), loss, dy, want_gradients, losses.data_ptr<double>());
    });
  }

  void add_columns(const at::Tensor& sum, const at::Tensor& dy,
                   int64_t first_column) const override {
    by_type(dy, [&](auto* t) {
      cuda::add_columns(floats(sum), ptr(t, dy) + first_column, dy.size(0), sum.numel(),
                        dy.size(1));
    });
  }

  // A stable sort brings the rows of a token together, in row order.
  void add_rows(const at::Tensor& sum, const at::Tensor& dy,
                const at::Tensor& to_row) const override {
    const auto [sorted, order] = at::sort(to_row, /*stable=*/true, /*dim=*/0, /*descending=*/false);
    by_type(dy, [&, &sorted = sorted, &order = order](auto* t) {
      cuda::add_rows_by_token(floats(sum), ptr(t, dy), sorted.template data_ptr<int64_t>(),
                              order.template data_ptr<int64_t>(), dy.size(0), dy.size(1));
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

  void add_to(const at::Tensor& sum, const at::Tensor& part) const override {
    by_type(part, [&](auto* t) { cuda::add_to(floats(sum), ptr(t, part), sum.numel()); });
  }
  void set_to(const at::Tensor& sum, const at::Tensor& part) const override { sum.copy_(part); }
  void narrow(const at::Tensor& out, const at::Tensor& in) const override {
    cuda::narrow(ptr(static_cast<Bf16*>(nullptr), out), floats(in), in.numel());
  }
  void adamw_update(const AdamWStep& step, bool decay, const float* grad, float* master, float* m,
                    float* v, int64_t n) const override {
    cuda::adamw_update(step, decay, grad, master, m, v, n);
  }
  void scale_and_square_tiles(float* grad, float scale, int64_t tiles,
                              double* sums_out) const override {
    cuda::scale_and_square_tiles(grad, scale, tiles, sums_out);
  }
};

}  // namespace

const Kernels& cuda_kernels() {
  static const CudaKernels column;
  return column;
}

}  // namespace lockstep::core
