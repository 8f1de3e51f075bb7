#include "core/model/dropout.h"

#include <cmath>

#include "base/check.h"
#include "base/hash.h"
#include "core/kernels/kernel_table.h"

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
  kernels_on(x).dropout(x, draw);
}

}  // namespace lockstep::core
