// From a tensor of a compute dtype to the kernels' element types.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/check.h"
#include "core/kernels/kernel_types.h"

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

// Where the elements of `t` from `first` on begin; null if it is undefined. The first argument says
// their type.
template <typename T>
T* ptr(T*, const at::Tensor& t, int64_t first = 0) {
  if (!t.defined()) return nullptr;
  LOCKSTEP_CHECK(t.is_contiguous() && t.element_size() == sizeof(T),
                 "a kernel needs contiguous memory of one type");
  return static_cast<T*>(t.data_ptr()) + first;
}

}  // namespace lockstep::core
