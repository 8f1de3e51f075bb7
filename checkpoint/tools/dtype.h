// The number formats that checkpoints are exported to and imported from; within, all is fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lockstep::checkpoint {

enum class Dtype { kF32, kBf16, kF16 };
const char* dtype_name(Dtype dtype);  // as safetensors has it: "F32" | "BF16" | "F16"
std::optional<Dtype> dtype_from_name(std::string_view name);
int64_t dtype_bytes(Dtype dtype);

// Elements of `from` to fp32; exact. Requires: sizes of the same number of elements.
void widen(Dtype dtype, std::span<const std::byte> from, std::span<std::byte> fp32);
// fp32 to F32 or BF16, rounded to nearest, ties to even. Requires: as above; not F16.
void narrow(Dtype dtype, std::span<const std::byte> fp32, std::span<std::byte> to);

}  // namespace lockstep::checkpoint
