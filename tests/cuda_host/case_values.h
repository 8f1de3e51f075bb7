// What the cases of kernels share: inputs from a seed, comparison with values in fp64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "base/hash.h"
#include "tests/cuda_host/device_memory.h"

namespace lockstep::core {

// A place and an element type to run a suite of cases on.
template <typename P, typename E>
struct Column {
  using Place = P;
  using T = E;
};
using Columns = testing::Types<Column<OnCpu, float>, Column<OnCpu, Bf16>, Column<OnCuda, float>,
                               Column<OnCuda, Bf16>>;
struct ColumnNames {
  template <typename C>
  static std::string GetName(int) {
    return std::string(std::is_same_v<typename C::Place, OnCpu> ? "Cpu" : "Cuda") +
           (std::is_same_v<typename C::T, float> ? "Fp32" : "Bf16");
  }
};

inline double wide(float value) { return static_cast<double>(value); }
inline double wide(double value) { return value; }
inline double wide(Bf16 value) { return static_cast<double>(bf16_to_float(value.bits)); }
inline void round_to(float& to, double value) { to = static_cast<float>(value); }
inline void round_to(Bf16& to, double value) { to.bits = float_to_bf16(static_cast<float>(value)); }

// n values of about a normal distribution (the sum of 12 uniform ones), times `scale`.
template <typename T>
std::vector<T> random_values(int64_t n, uint64_t seed, double scale = 1) {
  std::vector<T> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    double sum = -6;
    for (uint64_t draw = 0; draw < 3; ++draw)
      for (const uint32_t word : philox(seed, draw, i).word) sum += word * 0x1p-32;
    round_to(values[i], sum * scale);
  }
  return values;
}
template <typename T>
std::vector<double> widened(const std::vector<T>& values) {
  std::vector<double> wider;
  for (const T& value : values) wider.push_back(wide(value));
  return wider;
}

// Each element is that of `want`, rounded once, but for `error`, that of arithmetic in fp32.
template <typename T>
void expect_close(const std::vector<T>& got, const std::vector<double>& want, double error,
                  const char* what) {
  constexpr double kRounding = std::is_same_v<T, Bf16> ? 0x1p-8 : 0;  // at most, of a value
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::abs(wide(got[i]) - want[i]), error + kRounding * std::abs(want[i]) * 1.001)
        << what << "[" << i << "] = " << wide(got[i]) << ", not " << want[i];
}

// What is no number keeps its bits on a CPU, and gets those of the GPU there.
template <typename T>
void expect_same_bits(const std::vector<T>& got, const std::vector<T>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(wide(got[i])) && std::isnan(wide(want[i]))) continue;
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(T)), 0) << what << "[" << i << "]";
  }
}

// One number for the bits of several arrays.
template <typename... T>
uint64_t hash_of(const std::vector<T>&... arrays) {
  uint64_t hash = 0;
  ((hash = xxh3_64(std::as_bytes(std::span(arrays)), hash)), ...);
  return hash;
}

}  // namespace lockstep::core
