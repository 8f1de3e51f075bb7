#include "checkpoint/tools/dtype.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"

namespace lockstep::checkpoint {
namespace {

template <typename To, typename From, typename Convert>
void convert(std::span<const std::byte> from, std::span<std::byte> to, Convert convert_one) {
  for (size_t i = 0; i < from.size() / sizeof(From); ++i) {
    From value;
    std::memcpy(&value, from.data() + i * sizeof(From), sizeof(From));
    const To result = convert_one(value);
    std::memcpy(to.data() + i * sizeof(To), &result, sizeof(To));
  }
}

}  // namespace

const char* dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32: return "F32";
    case Dtype::kBf16: return "BF16";
    case Dtype::kF16: return "F16";
  }
  return "?";
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16})
    if (name == dtype_name(dtype)) return dtype;
  return std::nullopt;
}

void widen(Dtype dtype, std::span<const std::byte> from, std::span<std::byte> fp32) {
  LOCKSTEP_CHECK(from.size() * 4 == fp32.size() * static_cast<size_t>(dtype_bytes(dtype)),
                 from.size(), " ", fp32.size());
  switch (dtype) {
    case Dtype::kF32: std::copy(from.begin(), from.end(), fp32.begin()); return;
    case Dtype::kBf16: convert<float, uint16_t>(from, fp32, bf16_to_float); return;
    case Dtype::kF16: convert<float, uint16_t>(from, fp32, half_to_float); return;
  }
}

void narrow(Dtype dtype, std::span<const std::byte> fp32, std::span<std::byte> to) {
  LOCKSTEP_CHECK(to.size() * 4 == fp32.size() * static_cast<size_t>(dtype_bytes(dtype)) &&
                     dtype != Dtype::kF16,
                 to.size(), " ", fp32.size(), " ", dtype_name(dtype));
  if (dtype == Dtype::kF32)
    std::copy(fp32.begin(), fp32.end(), to.begin());
  else
    convert<uint16_t, float>(fp32, to, float_to_bf16);
}

}  // namespace lockstep::checkpoint
