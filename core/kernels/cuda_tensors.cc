#include "core/kernels/cuda_tensors.h"

#include "core/kernels/cuda_kernels.h"
#include "core/kernels/element_type.h"

namespace lockstep::core::cuda {
namespace {

// Kernels are named with their namespace: by their arguments the CPU's would be found as well.

// Where the elements of `like`'s type in `t` begin; null if undefined.
template <typename T>
T* ptr(T*, const at::Tensor& t) {
  if (!t.defined()) return nullptr;
  LOCKSTEP_CHECK(t.is_cuda() && t.is_contiguous() && t.element_size() == sizeof(T),
                 "a CUDA kernel needs contiguous memory on the device, of one type");
  return static_cast<T*>(t.data_ptr());
}

at::Tensor fp32(at::IntArrayRef shape, const at::Tensor& like) {
  return at::empty(shape, like.options().dtype(at::kFloat));
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w, double eps, at::Tensor& scale) {
  at::Tensor y = at::empty_like(x);
  scale = fp32({x.size(0)}, x);
  by_type(x, [&](auto* t) {
    cuda::rms_norm_forward(ptr(t, x), ptr(t, w), ptr(t, y), scale.data_ptr<float>(), x.size(0), 1,
                           x.size(1), x.size(1), static_cast<float>(eps));
  });
  return y;
}

void rms_norm_back(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                   const at::Tensor& scale, const at::Tensor& residual, at::Tensor& dx,
                   at::Tensor& dw_sum) {
  by_type(x, [&](auto* t) {
    cuda::rms_norm_backward(ptr(t, dy), ptr(t, x), ptr(t, w), scale.data_ptr<float>(),
                            ptr(t, residual), ptr(t, dx), dw_sum.data_ptr<float>(), x.size(0), 1,
                            x.size(1), x.size(1));
  });
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps,
                      at::Tensor& stats) {
  at::Tensor y = at::empty_like(x);
  stats = fp32({x.size(0), 2}, x);
  by_type(x, [&](auto* t) {
    cuda::layer_norm_forward(ptr(t, x), ptr(t, w), ptr(t, b), ptr(t, y), stats.data_ptr<float>(),
                             x.size(0), x.size(1), static_cast<float>(eps));
  });
  return y;
}

void layer_norm_back(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                     const at::Tensor& stats, const at::Tensor& residual, at::Tensor& dx,
                     at::Tensor& dw_sum, at::Tensor& db_sum) {
  by_type(x, [&](auto* t) {
    cuda::layer_norm_backward(ptr(t, dy), ptr(t, x), ptr(t, w), stats.data_ptr<float>(),
                              ptr(t, residual), ptr(t, dx), dw_sum.data_ptr<float>(),
                              db_sum.data_ptr<float>(), x.size(0), x.size(1));
  });
}

void head_norm(const at::Tensor& x, const at::Tensor& w, at::Tensor& y, at::Tensor& scale,
               int64_t first_column, int64_t heads, double eps) {
  scale = fp32({x.size(0), heads}, x);
  by_type(x, [&](auto* t) {
    cuda::rms_norm_forward(ptr(t, x) + first_column, ptr(t, w), ptr(t, y) + first_column,
                           scale.data_ptr<float>(), x.size(0), heads, w.size(0), x.size(1),
                           static_cast<float>(eps));
  });
}

void head_norm_back(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                    const at::Tensor& scale, at::Tensor& dx, at::Tensor& dw_sum,
                    int64_t first_column, int64_t heads) {
  by_type(x, [&](auto* t) {
    const decltype(t) no_residual = nullptr;
    cuda::rms_norm_backward(ptr(t, dy) + first_column, ptr(t, x) + first_column, ptr(t, w),
                            scale.data_ptr<float>(), no_residual, ptr(t, dx) + first_column,
                            dw_sum.data_ptr<float>(), x.size(0), heads, w.size(0), x.size(1));
  });
}

void rotate_rows(at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                 const at::Tensor& positions, int64_t heads, int64_t head_dim, float direction) {
  by_type(x, [&](auto* t) {
    cuda::rotate_heads(ptr(t, x), cos.data_ptr<float>(), sin.data_ptr<float>(),
                       positions.data_ptr<int64_t>(), x.size(0), heads, head_dim, x.size(1),
                       direction);
  });
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const int64_t dim = gate_up.size(1) / 2;
  at::Tensor y = at::empty({gate_up.size(0), dim}, gate_up.options());
  by_type(y, [&](auto* t) { cuda::swiglu_forward(ptr(t, gate_up), ptr(t, y), y.size(0), dim); });
  return y;
}

void swiglu_back(const at::Tensor& dy, const at::Tensor& gate_up, at::Tensor& d_gate_up) {
  by_type(dy, [&](auto* t) {
    cuda::swiglu_backward(ptr(t, dy), ptr(t, gate_up), ptr(t, d_gate_up), dy.size(0), dy.size(1));
  });
}

at::Tensor gelu_new(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  by_type(x, [&](auto* t) { cuda::gelu_forward(ptr(t, x), ptr(t, y), x.numel()); });
  return y;
}

void gelu_new_back(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dx) {
  by_type(x, [&](auto* t) { cuda::gelu_backward(ptr(t, dy), ptr(t, x), ptr(t, dx), x.numel()); });
}

void add_columns(const at::Tensor& sum, const at::Tensor& dy, int64_t first_column) {
  by_type(dy, [&](auto* t) {
    cuda::add_columns(sum.data_ptr<float>(), ptr(t, dy) + first_column, dy.size(0), sum.numel(),
                      dy.size(1));
  });
}

// A stable sort brings the rows of a token together, in row order.
void add_token_rows(const at::Tensor& sum, const at::Tensor& dy, const at::Tensor& tokens) {
  const auto [sorted, order] = at::sort(tokens, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  by_type(dy, [&](auto* t) {
    cuda::add_rows_by_token(sum.data_ptr<float>(), ptr(t, dy), sorted.template data_ptr<int64_t>(),
                            order.template data_ptr<int64_t>(), dy.size(0), dy.size(1));
  });
}

void cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double z_loss,
                   double label_smoothing, float dy, bool want_gradients,
                   const at::Tensor& losses) {
  by_type(logits, [&](auto* t) {
    cuda::cross_entropy(ptr(t, logits), labels.data_ptr<int64_t>(), logits.size(0), logits.size(1),
                        z_loss, label_smoothing, dy, want_gradients, losses.data_ptr<double>());
  });
}

void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() == at::kFloat) {
    sum.addmm_(a, b);
  } else {
    at::Tensor out = sum;
    at::addmm_out(out, sum, a, b, at::kFloat);
  }
}

}  // namespace lockstep::core::cuda
