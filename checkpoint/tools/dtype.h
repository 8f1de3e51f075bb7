// Number formats: what checkpoints hold, are exported to and imported from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "checkpoint/record/state.h"

namespace lockstep::checkpoint {

const char* dtype_name(Dtype dtype);  // as safetensors has it: "F32" | "BF16" | "F16"
std::optional<Dtype> dtype_from_name(std::string_view name);

// Elements of `from` to fp32; exact. Requires: sizes of the same number of elements.
void widen(Dtype dtype, std::span<const std::byte> from, std::span<std::byte> fp32);
// fp32 to F32 or BF16, rounded to nearest, ties to even. Requires: as above; not F16.
void narrow(Dtype dtype, std::span<const std::byte> fp32, std::span<std::byte> to);

}  // namespace lockstep::checkpoint
