#include "core/kernels/tensor_kernels.h"

#include <cmath>
#include <numbers>

#include "core/device/runtime.h"
#include "core/kernels/add_kernels.h"
#include "core/kernels/cuda_tensors.h"
#include "core/kernels/element_type.h"
#include "core/kernels/parallel.h"

namespace lockstep::core {
namespace {

constexpr int64_t kGrain = 16384;  // elements worth a thread's while
constexpr int64_t kPartRows = 64;

// body(begin, end) for ranges of `rows` rows, each `width` elements wide.
template <typename F>
void over_rows(int64_t rows, int64_t width, F&& body) {
  parallel_ranges(rows, std::max<int64_t>(1, kGrain / width), std::forward<F>(body));
}

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
      add_floats(sum.data_ptr<float>(), from, width);
      from += width;
    }
  }
}

template <typename T>
const T* row_or_null(const at::Tensor& t, int64_t row) {
  return t.defined() ? ptr<T>(t) + row * t.size(1) : nullptr;
}

// Llama 3: wavelengths beyond what was trained are stretched by `factor`, those well inside stay,
// and those between are blended.
double stretched(double frequency, const layout::RopeScaling& s) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < s.original_positions / s.high_freq_factor) return frequency;
  if (wavelength > s.original_positions / s.low_freq_factor) return frequency / s.factor;
  const double smooth = (s.original_positions / wavelength - s.low_freq_factor) /
                        (s.high_freq_factor - s.low_freq_factor);
  return (1.0 - smooth) * frequency / s.factor + smooth * frequency;
}

}  // namespace

RotaryTable RotaryTable::create(int64_t seq_len, int64_t head_dim, double theta,
                                const layout::RopeScaling& scaling) {
  const int64_t half = head_dim / 2;
  RotaryTable table{at::empty({seq_len, half}, at::kFloat), at::empty({seq_len, half}, at::kFloat)};
  for (int64_t t = 0; t < seq_len; ++t)
    for (int64_t i = 0; i < half; ++i) {
      double frequency =
          std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      if (scaling.factor > 0) frequency = stretched(frequency, scaling);
      // fp32 angles, as the models' reference implementations form them.
      const float angle = static_cast<float>(t) * static_cast<float>(frequency);
      table.cos_TH.data_ptr<float>()[t * half + i] = std::cos(angle);
      table.sin_TH.data_ptr<float>()[t * half + i] = std::sin(angle);
    }
  return table;
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w, double eps, at::Tensor& scale) {
  if constexpr (cuda::kBuilt)
    if (x.is_cuda()) return cuda::rms_norm(x, w, eps, scale);
  at::Tensor y = at::empty_like(x);
  scale = at::empty({x.size(0)}, at::kFloat);
  const int64_t dim = x.size(1);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    over_rows(x.size(0), dim, [&](int64_t begin, int64_t end) {
      rms_norm_forward<T>(ptr<T>(x) + begin * dim, ptr<T>(w), ptr<T>(y) + begin * dim,
                          scale.data_ptr<float>() + begin, end - begin, dim,
                          static_cast<float>(eps));
    });
  });
  return y;
}

at::Tensor rms_norm_back(at::Tensor dy, const at::Tensor& x, const at::Tensor& w,
                         const at::Tensor& scale, const at::Tensor& residual, at::Tensor dw_sum) {
  if constexpr (cuda::kBuilt)
    if (x.is_cuda()) return cuda::rms_norm_back(dy, x, w, scale, residual, dy, dw_sum), dy;
  const int64_t dim = x.size(1);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    sum_over_rows(x.size(0), {dw_sum}, [&](int64_t begin, int64_t end, float* dw) {
      T* const d = ptr<T>(dy) + begin * dim;
      rms_norm_backward<T>(d, ptr<T>(x) + begin * dim, ptr<T>(w), scale.data_ptr<float>() + begin,
                           row_or_null<T>(residual, begin), d, dw, end - begin, dim);
    });
  });
  return dy;
}

void head_norm(const at::Tensor& x, const at::Tensor& w, at::Tensor& y, at::Tensor& scale,
               int64_t first_column, int64_t heads, double eps) {
  if constexpr (cuda::kBuilt)
    if (x.is_cuda()) return cuda::head_norm(x, w, y, scale, first_column, heads, eps);
  scale = at::empty({x.size(0), heads}, at::kFloat);
  const int64_t stride = x.size(1);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    over_rows(x.size(0), heads * w.size(0), [&](int64_t begin, int64_t end) {
      const int64_t at = begin * stride + first_column;
      head_norm_forward<T>(ptr<T>(x) + at, ptr<T>(w), ptr<T>(y) + at,
                           scale.data_ptr<float>() + begin * heads, end - begin, heads, w.size(0),
                           stride, static_cast<float>(eps));
    });
  });
}

void head_norm_back(at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                    const at::Tensor& scale, at::Tensor dw_sum, int64_t first_column,
                    int64_t heads) {
  if constexpr (cuda::kBuilt)
    if (x.is_cuda()) return cuda::head_norm_back(dy, x, w, scale, dy, dw_sum, first_column, heads);
  const int64_t stride = x.size(1);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    sum_over_rows(x.size(0), {dw_sum}, [&](int64_t begin, int64_t end, float* dw) {
      const int64_t at = begin * stride + first_column;
      head_norm_backward<T>(ptr<T>(dy) + at, ptr<T>(x) + at, ptr<T>(w),
                            scale.data_ptr<float>() + begin * heads, ptr<T>(dy) + at, dw,
                            end - begin, heads, w.size(0), stride);
    });
  });
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps,
                      at::Tensor& stats) {
  if constexpr (cuda::kBuilt)
    if (x.is_cuda()) return cuda::layer_norm(x, w, b, eps, stats);
  at::Tensor y = at::empty_like(x);
  stats = at::empty({x.size(0), 2}, at::kFloat);
  const int64_t dim = x.size(1);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    over_rows(x.size(0), dim, [&](int64_t begin, int64_t end) {
      layer_norm_forward<T>(ptr<T>(x) + begin * dim, ptr<T>(w), ptr<T>(b), ptr<T>(y) + begin * dim,
                            stats.data_ptr<float>() + 2 * begin, end - begin, dim,
                            static_cast<float>(eps));
    });
  });
  return y;
}

at::Tensor layer_norm_back(at::Tensor dy, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& stats, const at::Tensor& residual, at::Tensor dw_sum,
                           at::Tensor db_sum) {
  if constexpr (cuda::kBuilt)
    if (x.is_cuda())
      return cuda::layer_norm_back(dy, x, w, stats, residual, dy, dw_sum, db_sum), dy;
  const int64_t dim = x.size(1);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    sum_over_rows(x.size(0), {dw_sum, db_sum}, [&](int64_t begin, int64_t end, float* sums) {
      T* const d = ptr<T>(dy) + begin * dim;
      layer_norm_backward<T>(d, ptr<T>(x) + begin * dim, ptr<T>(w),
                             stats.data_ptr<float>() + 2 * begin, row_or_null<T>(residual, begin),
                             d, sums, sums + dim, end - begin, dim);
    });
  });
  return dy;
}

void rotate_rows(at::Tensor& x, const RotaryTable& table, const at::Tensor& positions,
                 int64_t heads, int64_t head_dim, float direction) {
  LOCKSTEP_CHECK(positions.size(0) == x.size(0), positions.size(0), " positions of ", x.size(0));
  if constexpr (cuda::kBuilt)
    if (x.is_cuda())
      return cuda::rotate_rows(x, table.cos_TH, table.sin_TH, positions, heads, head_dim,
                               direction);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    over_rows(x.size(0), heads * head_dim, [&](int64_t begin, int64_t end) {
      rotate_heads<T>(ptr<T>(x) + begin * x.size(1), table.cos_TH.data_ptr<float>(),
                      table.sin_TH.data_ptr<float>(), positions.data_ptr<int64_t>() + begin,
                      end - begin, heads, head_dim, x.size(1), direction);
    });
  });
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  if constexpr (cuda::kBuilt)
    if (gate_up.is_cuda()) return cuda::swiglu(gate_up);
  const int64_t dim = gate_up.size(1) / 2;
  at::Tensor y = at::empty({gate_up.size(0), dim}, gate_up.options());
  by_type(y, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    over_rows(y.size(0), dim, [&](int64_t begin, int64_t end) {
      swiglu_forward<T>(ptr<T>(gate_up) + begin * 2 * dim, ptr<T>(y) + begin * dim, end - begin,
                        dim);
    });
  });
  return y;
}

at::Tensor swiglu_back(const at::Tensor& dy, at::Tensor gate_up) {
  if constexpr (cuda::kBuilt)
    if (dy.is_cuda()) return cuda::swiglu_back(dy, gate_up, gate_up), gate_up;
  const int64_t dim = dy.size(1);
  by_type(dy, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    over_rows(dy.size(0), dim, [&](int64_t begin, int64_t end) {
      swiglu_backward<T>(ptr<T>(dy) + begin * dim, ptr<T>(gate_up) + begin * 2 * dim, end - begin,
                         dim);
    });
  });
  return gate_up;
}

at::Tensor gelu_new(const at::Tensor& x) {
  if constexpr (cuda::kBuilt)
    if (x.is_cuda()) return cuda::gelu_new(x);
  at::Tensor y = at::empty_like(x);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    over_rows(x.numel(), 1, [&](int64_t begin, int64_t end) {
      gelu_forward<T>(ptr<T>(x) + begin, ptr<T>(y) + begin, end - begin);
    });
  });
  return y;
}

at::Tensor gelu_new_back(const at::Tensor& dy, at::Tensor x) {
  if constexpr (cuda::kBuilt)
    if (x.is_cuda()) return cuda::gelu_new_back(dy, x, x), x;
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    over_rows(x.numel(), 1, [&](int64_t begin, int64_t end) {
      gelu_backward<T>(ptr<T>(dy) + begin, ptr<T>(x) + begin, end - begin);
    });
  });
  return x;
}

void softmax_of_seen(at::Tensor& scores, const ScoreBlock& block, float scale) {
  const int64_t size = block.rows * block.keys;
  by_type(scores, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    over_rows(scores.size(0), size, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        masked_softmax<T>(ptr<T>(scores) + i * size, block, scale);
    });
  });
}

void softmax_of_seen_back(const at::Tensor& p, at::Tensor& dp, const ScoreBlock& block,
                          float scale) {
  const int64_t size = block.rows * block.keys;
  by_type(p, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    over_rows(p.size(0), size, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        masked_softmax_backward<T>(ptr<T>(p) + i * size, ptr<T>(dp) + i * size, block, scale);
    });
  });
}

void add_columns(at::Tensor sum, const at::Tensor& dy, int64_t first_column) {
  if constexpr (cuda::kBuilt)
    if (dy.is_cuda()) return cuda::add_columns(sum, dy, first_column);
  const int64_t columns = sum.numel(), stride = dy.size(1);
  by_type(dy, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    sum_over_rows(dy.size(0), {sum}, [&](int64_t begin, int64_t end, float* partial) {
      for (int64_t r = begin; r < end; ++r)
        add_to(partial, ptr<T>(dy) + r * stride + first_column, columns);
    });
  });
}

}  // namespace lockstep::core
