#include "core/model/tensor_kernels.h"

#include <cmath>

#include "base/check.h"
#include "core/model/kernels.h"

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

bool back_to_back(const Unit& unit, int first, int count) {
  for (int i = first; i + 1 < first + count; ++i)
    if (unit.spec().params[static_cast<size_t>(i)].elements() % model_spec::kTileElements != 0)
      return false;
  return true;
}

int64_t stacked_rows(const Unit& unit, int first, int count) {
  int64_t rows = 0;
  for (int i = first; i < first + count; ++i)
    rows += unit.spec().params[static_cast<size_t>(i)].shape[0];
  return rows;
}

at::Tensor stacked_view(const at::Tensor& first_matrix, int64_t rows) {
  return first_matrix.as_strided({rows, first_matrix.size(1)}, {first_matrix.size(1), 1});
}

}  // namespace

RotaryTable RotaryTable::create(int64_t seq_len, int64_t head_dim, double theta) {
  const int64_t half = head_dim / 2;
  RotaryTable table{at::empty({seq_len, half}, at::kFloat), at::empty({seq_len, half}, at::kFloat)};
  for (int64_t t = 0; t < seq_len; ++t)
    for (int64_t i = 0; i < half; ++i) {
      const double frequency =
          std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
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

at::Tensor stacked_weight(Unit& unit, int first, int count) {
  if (back_to_back(unit, first, count))
    return stacked_view(unit.weight(first), stacked_rows(unit, first, count));
  std::vector<at::Tensor> parts;
  for (int i = first; i < first + count; ++i) parts.push_back(unit.weight(i));
  return at::cat(parts, 0);
}

void stacked_weight_grad(Unit& unit, int first, int count, const at::Tensor& dy,
                         const at::Tensor& x) {
  if (back_to_back(unit, first, count)) {
    at::Tensor out = stacked_view(unit.grad(first), stacked_rows(unit, first, count));
    at::mm_out(out, dy.t(), x);
    return;
  }
  const at::Tensor stacked = at::mm(dy.t(), x);
  int64_t row = 0;
  for (int i = first; i < first + count; ++i) {
    at::Tensor out = unit.grad(i);
    out.copy_(stacked.narrow(0, row, out.size(0)));
    row += out.size(0);
  }
}

}  // namespace lockstep::core
