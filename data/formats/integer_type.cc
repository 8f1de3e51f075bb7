#include "data/formats/integer_type.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

template <typename Stored>
void widen_as(const std::byte* in, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, in + i * sizeof(Stored), sizeof(Stored));
    out[i] = static_cast<int64_t>(stored);
  }
}

}  // namespace

std::string IntegerType::name() const { return text(is_signed ? "i" : "u", bytes * 8); }

std::optional<IntegerType> integer_type(std::string_view descr) {
  if (descr.size() != 3 || (descr[1] != 'i' && descr[1] != 'u')) return std::nullopt;
  const int64_t bytes = descr[2] - '0';
  if (descr[0] != (bytes == 1 ? '|' : '<')) return std::nullopt;
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) return std::nullopt;
  return IntegerType{bytes, descr[1] == 'i'};
}

void widen(const std::byte* in, IntegerType type, std::span<int64_t> out) {
  switch (type.bytes) {
    case 1: return type.is_signed ? widen_as<int8_t>(in, out) : widen_as<uint8_t>(in, out);
    case 2: return type.is_signed ? widen_as<int16_t>(in, out) : widen_as<uint16_t>(in, out);
    case 4: return type.is_signed ? widen_as<int32_t>(in, out) : widen_as<uint32_t>(in, out);
    case 8: return widen_as<int64_t>(in, out);
    default: LOCKSTEP_CHECK(false, type.bytes, " bytes");
  }
}

}  // namespace lockstep::data
