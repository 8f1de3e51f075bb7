// From a tensor of a compute dtype to the kernels' element types.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/check.h"
#include "core/kernels/add_kernels.h"
#include "core/kernels/kernels.h"

namespace lockstep::core {

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

// sum += part, in fp32.
inline void add_to(float* sum, const float* part, int64_t n) { add_floats(sum, part, n); }
inline void add_to(float* sum, const Bf16* part, int64_t n) { add_bf16(sum, &part->bits, n); }

}  // namespace lockstep::core
