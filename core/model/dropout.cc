#include "core/model/dropout.h"

#include <cmath>

#include "base/hash.h"
#include "core/device/runtime.h"
#include "core/kernels/cuda_kernels.h"
#include "core/kernels/element_type.h"
#include "core/kernels/parallel.h"

namespace lockstep::core {
namespace {

constexpr int64_t kSlotLimit = int64_t{1} << 24;  // of a step; a counter holds step and slot

}  // namespace

Dropout::Dropout(double probability, uint64_t seed, const std::string& place)
    : key_(purpose_key(seed, "dropout/" + place)),
      threshold_(static_cast<uint32_t>(std::lround(probability * 4294967296.0))),
      scale_(static_cast<float>(1.0 / (1.0 - probability))) {}

void Dropout::apply(at::Tensor& x, const SlotInput& slot) const {
  if (!active()) return;
  LOCKSTEP_CHECK(slot.slot >= 0 && slot.slot < kSlotLimit, slot.slot);
  const DropoutDraw draw{key_, static_cast<uint64_t>(slot.step * kSlotLimit + slot.slot),
                         threshold_, scale_};
  const int64_t n = x.numel(), runs = (n + kDropoutRun - 1) / kDropoutRun;
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* const values = ptr<T>(x);
    if constexpr (cuda::kBuilt)
      if (x.is_cuda())
        return cuda::dropout(values, 0, n, draw.key, draw.counter_high, draw.threshold, draw.scale);
    parallel_ranges(runs, 64, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * kDropoutRun;
      dropout(values + first, first, std::min(n, end * kDropoutRun) - first, draw);
    });
  });
}

}  // namespace lockstep::core
