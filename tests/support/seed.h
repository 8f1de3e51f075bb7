// The seed of a randomized test. It is the same every time, so that the test says the same every
// time. LOCKSTEP_SEED replaces it; LOCKSTEP_SEED=fresh draws a new one, which is printed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>

namespace lockstep::test_support {

inline uint64_t seed_or(uint64_t usual) {
  const char* const given = std::getenv("LOCKSTEP_SEED");
  if (given == nullptr) return usual;
  if (std::string_view(given) != "fresh") return std::strtoull(given, nullptr, 10);
  static const uint64_t fresh = [] {
    const uint64_t drawn = std::random_device()();
    std::printf("LOCKSTEP_SEED=%llu\n", static_cast<unsigned long long>(drawn));
    return drawn;
  }();
  return fresh;
}

}  // namespace lockstep::test_support
