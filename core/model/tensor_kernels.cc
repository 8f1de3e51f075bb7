#include "core/model/tensor_kernels.h"

#include <cmath>
#include <numbers>

#include "base/check.h"
#include "core/model/kernels.h"
#include "core/sharding/add_kernels.h"

namespace lockstep::core {
namespace {

// Calls f with a typed null pointer that says the element type of `t`.
template <typename F>
void by_type(const at::Tensor& t, F&& f) {
  if (t.scalar_type() == at::kFloat) {
    f(static_cast<float*>(nullptr));
  } else {
    LOCKSTEP_CHECK(t.scalar_type() == at::kBFloat16, c10::toString(t.scalar_type()));
    f(static_cast<Bf16*>(nullptr));
  }
}

template <typename T>
T* ptr(const at::Tensor& t) {
  LOCKSTEP_CHECK(t.is_contiguous(), "a kernel needs contiguous memory");
  return static_cast<T*>(t.data_ptr());
}

// Llama 3: wavelengths beyond what was trained are stretched by `factor`, those well inside stay,
// and those between are blended.
double stretched(double frequency, const model_spec::RopeScaling& s) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < s.original_positions / s.high_freq_factor) return frequency;
  if (wavelength > s.original_positions / s.low_freq_factor) return frequency / s.factor;
  const double smooth = (s.original_positions / wavelength - s.low_freq_factor) /
                        (s.high_freq_factor - s.low_freq_factor);
  return (1.0 - smooth) * frequency / s.factor + smooth * frequency;
}

}  // namespace

RotaryTable RotaryTable::create(int64_t seq_len, int64_t head_dim, double theta,
                                const model_spec::RopeScaling& scaling) {
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
  at::Tensor y = at::empty_like(x);
  scale = at::empty({x.size(0)}, at::kFloat);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    rms_norm_forward<T>(ptr<T>(x), ptr<T>(w), ptr<T>(y), scale.data_ptr<float>(), x.size(0),
                        x.size(1), static_cast<float>(eps));
  });
  return y;
}

at::Tensor rms_norm_back(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                         const at::Tensor& scale, at::Tensor dw_sum) {
  at::Tensor dx = at::empty_like(x);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    rms_norm_backward<T>(ptr<T>(dy), ptr<T>(x), ptr<T>(w), scale.data_ptr<float>(), ptr<T>(dx),
                         dw_sum.data_ptr<float>(), x.size(0), x.size(1));
  });
  return dx;
}

void head_norm(const at::Tensor& x, const at::Tensor& w, at::Tensor& y, at::Tensor& scale,
               int64_t first_column, int64_t heads, double eps) {
  scale = at::empty({x.size(0), heads}, at::kFloat);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    head_norm_forward<T>(ptr<T>(x) + first_column, ptr<T>(w), ptr<T>(y) + first_column,
                         scale.data_ptr<float>(), x.size(0), heads, w.size(0), x.size(1),
                         static_cast<float>(eps));
  });
}

void head_norm_back(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                    const at::Tensor& scale, at::Tensor& dx, at::Tensor dw_sum,
                    int64_t first_column, int64_t heads) {
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    head_norm_backward<T>(ptr<T>(dy) + first_column, ptr<T>(x) + first_column, ptr<T>(w),
                          scale.data_ptr<float>(), ptr<T>(dx) + first_column,
                          dw_sum.data_ptr<float>(), x.size(0), heads, w.size(0), x.size(1));
  });
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps,
                      at::Tensor& stats) {
  at::Tensor y = at::empty_like(x);
  stats = at::empty({x.size(0), 2}, at::kFloat);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    layer_norm_forward<T>(ptr<T>(x), ptr<T>(w), ptr<T>(b), ptr<T>(y), stats.data_ptr<float>(),
                          x.size(0), x.size(1), static_cast<float>(eps));
  });
  return y;
}

at::Tensor layer_norm_back(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& stats, at::Tensor dw_sum, at::Tensor db_sum) {
  at::Tensor dx = at::empty_like(x);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    layer_norm_backward<T>(ptr<T>(dy), ptr<T>(x), ptr<T>(w), stats.data_ptr<float>(), ptr<T>(dx),
                           dw_sum.data_ptr<float>(), db_sum.data_ptr<float>(), x.size(0),
                           x.size(1));
  });
  return dx;
}

void rotate_rows(at::Tensor& x, const RotaryTable& table, int64_t seq_len, int64_t heads,
                 int64_t head_dim, float direction) {
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    rotate_heads<T>(ptr<T>(x), table.cos_TH.data_ptr<float>(), table.sin_TH.data_ptr<float>(),
                    x.size(0), seq_len, heads, head_dim, x.size(1), direction);
  });
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const int64_t dim = gate_up.size(1) / 2;
  at::Tensor y = at::empty({gate_up.size(0), dim}, gate_up.options());
  by_type(y, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    swiglu_forward<T>(ptr<T>(gate_up), ptr<T>(y), y.size(0), dim);
  });
  return y;
}

at::Tensor swiglu_back(const at::Tensor& dy, const at::Tensor& gate_up) {
  at::Tensor d = at::empty_like(gate_up);
  by_type(dy, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    swiglu_backward<T>(ptr<T>(dy), ptr<T>(gate_up), ptr<T>(d), dy.size(0), dy.size(1));
  });
  return d;
}

at::Tensor gelu_new(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    gelu_forward<T>(ptr<T>(x), ptr<T>(y), x.numel());
  });
  return y;
}

at::Tensor gelu_new_back(const at::Tensor& dy, const at::Tensor& x) {
  at::Tensor dx = at::empty_like(x);
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    gelu_backward<T>(ptr<T>(dy), ptr<T>(x), ptr<T>(dx), x.numel());
  });
  return dx;
}

void add_columns(at::Tensor sum, const at::Tensor& dy, int64_t first_column) {
  const int64_t columns = sum.numel(), stride = dy.size(1);
  by_type(dy, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* row = ptr<T>(dy) + first_column;
    for (int64_t r = 0; r < dy.size(0); ++r, row += stride) {
      if constexpr (std::is_same_v<T, float>)
        add_floats(sum.data_ptr<float>(), row, columns);
      else
        add_bf16(sum.data_ptr<float>(), &row->bits, columns);
    }
  });
}

}  // namespace lockstep::core
