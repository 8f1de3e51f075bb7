#include "core/kernels/matmul.h"

#include <ATen/Context.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/check.h"
#include "core/kernels/element_type.h"
#include "core/kernels/parallel.h"
#include "core/kernels/row_kernels.h"

#if defined(LOCKSTEP_ONEDNN_MATMUL)  // cmake/Torch.cmake looks for it
// oneDNN's product, which at::mm uses for bf16 alone; LibTorch exports it and ships no header.
namespace at::native {
void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& out, float beta, float alpha);
}
#endif

namespace lockstep::core {
namespace {

// LibTorch multiplies bf16 by oneDNN with these three extensions, or with AVX-NE-CONVERT, which few
// CPUs have and none of these. mkldnn_matmul refuses a CPU without either, for every type.
#if defined(__x86_64__)
bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}
bool widens(const at::Tensor& out) {
  return out.scalar_type() == at::kBFloat16 && out.is_cpu() && !has_avx512();
}
#else
bool widens(const at::Tensor&) { return false; }
#endif

// On x86-64 oneDNN's fp32 kernels use AVX-512 where at::mm's BLAS (MKL on AMD) keeps to AVX2.
#if defined(LOCKSTEP_ONEDNN_MATMUL) && defined(__x86_64__)
bool multiplied_by_onednn(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  const bool faster = has_avx512() && a.scalar_type() == at::kFloat && a.is_cpu() &&
                      a.numel() > 0 && at::hasMKLDNN() && at::globalContext().userEnabledMkldnn();
  if (faster) at::native::mkldnn_matmul(a, b, out, /*beta=*/0.0f, /*alpha=*/1.0f);
  return faster;
}
#else
bool multiplied_by_onednn(const at::Tensor&, const at::Tensor&, const at::Tensor&) { return false; }
#endif

// One of the three panels that are in use at a time. What it was given last is gone.
class Panel {
 public:
  at::Tensor of(at::IntArrayRef sizes) {
    const int64_t count = sizes[0] * sizes[1];
    if (count > room_) {
      constexpr int64_t kLine = kAlignment / sizeof(float);
      room_ = (count + kLine - 1) / kLine * kLine;
      floats_.reset(static_cast<float*>(
          std::aligned_alloc(kAlignment, static_cast<size_t>(room_) * sizeof(float))));
      LOCKSTEP_CHECK(floats_ != nullptr, "no memory for ", room_, " floats");
    }
    return at::from_blob(floats_.get(), sizes, at::kFloat);
  }
  // Rows stay rows in memory, and columns columns.
  at::Tensor widened(const at::Tensor& matrix) {
    const bool by_columns = matrix.stride(0) == 1 && matrix.stride(1) != 1;
    const at::Tensor lines = by_columns ? matrix.t() : matrix;
    const at::Tensor wide = of(lines.sizes()).copy_(lines);
    return by_columns ? wide.t() : wide;
  }

 private:
  // As LibTorch's tensors have it: a library may choose its loops by where the data begin, and
  // every rank must take the same ones.
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(float* floats) const { std::free(floats); }
  };
  std::unique_ptr<float, Free> floats_;
  int64_t room_ = 0;
};

thread_local bool row_by_row = false;

bool by_rows(const at::Tensor& a, const at::Tensor& out) {
  return row_by_row && out.is_cpu() && a.dim() == 2;
}

// `b` is a matrix as it lies, or the transposed view of one.
void multiply_by_rows(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  const int64_t rows = a.size(0), inner = a.size(1), width = b.size(1);
  const bool transposed = b.stride(0) == 1 && (width == 1 || b.stride(1) == inner);
  LOCKSTEP_CHECK(a.is_contiguous() && b.size(0) == inner && (transposed || b.is_contiguous()),
                 "a product row by row of ", a.sizes(), " and ", b.sizes(), " at ", b.strides());
  const at::Tensor wide = a.to(at::kFloat);
  const RowFactor x{wide.const_data_ptr<float>(), rows, inner};
  by_type(out, [&](auto* t) {
    const auto* const w = static_cast<decltype(t)>(b.data_ptr());
    parallel_rows(width, inner * std::max<int64_t>(1, rows), [&](int64_t begin, int64_t end) {
      if (transposed)
        rows_by_rows(x, w, {begin, end, width}, ptr(t, out));
      else
        rows_by_columns(x, w, {begin, end, width}, ptr(t, out));
    });
  });
}

}  // namespace

RowByRow::RowByRow() : before_(std::exchange(row_by_row, true)) {}
RowByRow::~RowByRow() { row_by_row = before_; }

void multiply_widened(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, double beta,
                      double alpha, int64_t panel) {
  if (a.dim() == 3) {
    for (int64_t s = 0; s < a.size(0); ++s)
      multiply_widened(a[s], b[s], out[s], beta, alpha, panel);
    return;
  }
  LOCKSTEP_CHECK(a.size(1) == b.size(0) && panel > 0, a.size(1), " ", b.size(0));
  thread_local Panel of_a, of_b, of_out;
  const int64_t rows = a.size(0), columns = b.size(1), inner = std::max<int64_t>(1, a.size(1));
  const int64_t most_columns = std::max<int64_t>(1, panel / inner);
  for (int64_t column = 0; column < columns; column += most_columns) {
    const int64_t n = std::min(most_columns, columns - column);
    const at::Tensor wide_b = of_b.widened(b.narrow(1, column, n));
    const int64_t most_rows = std::max<int64_t>(1, panel / std::max(inner, n));
    for (int64_t row = 0; row < rows; row += most_rows) {
      const int64_t m = std::min(most_rows, rows - row);
      const at::Tensor to = out.narrow(0, row, m).narrow(1, column, n);
      at::Tensor sum = of_out.of({m, n});
      if (beta != 0) sum.copy_(to);
      sum.addmm_(of_a.widened(a.narrow(0, row, m)), wide_b, beta, alpha);
      to.copy_(sum);
    }
  }
}

void multiply_add(const at::Tensor& a, const at::Tensor& b, at::Tensor& out, double beta,
                  double alpha) {
  if (widens(out)) return multiply_widened(a, b, out, beta, alpha);
  out.addmm_(a, b, beta, alpha);
}

void multiply(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  if (by_rows(a, out)) return multiply_by_rows(a, b, out);
  if (widens(out)) return multiply_widened(a, b, out, /*beta=*/0, /*alpha=*/1);
  if (multiplied_by_onednn(a, b, out)) return;
  if (a.dim() == 2) {
    at::mm_out(out, a, b);
  } else {
    at::bmm_out(out, a, b);
  }
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  std::vector<int64_t> shape = a.sizes().vec();
  shape.back() = b.size(-1);
  at::Tensor out = at::empty(shape, a.options());
  multiply(a, b, out);
  return out;
}

}  // namespace lockstep::core
