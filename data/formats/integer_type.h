// The integers that token files are made of: little-endian, 1 to 8 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::data {

struct IntegerType {
  int64_t bytes = 0;  // 1, 2, 4, 8
  bool is_signed = false;
  std::string name() const;  // "u16"
};

// NumPy's spelling: "<u2", "|i1", … Empty: no such integer.
std::optional<IntegerType> integer_type(std::string_view descr);

// out[i] = the i-th integer at `in`, which need not be aligned. Unsigned ones of 8 bytes turn
// negative from 2^63 on.
void widen(const std::byte* in, IntegerType type, std::span<int64_t> out);

}  // namespace lockstep::data
