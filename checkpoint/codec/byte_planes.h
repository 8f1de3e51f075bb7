// HDF5's shuffle filter (id 2) for elements of 4 or 2 bytes: all first bytes, all second bytes, …
// Each of these is a byte plane. Pure functions, in the widest form that the CPU has.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace lockstep::checkpoint {

inline constexpr size_t kPlanes = 4;  // at most: of fp32; bf16 has 2

// Word i of `in`, of `count` bytes, gives byte i of each of the first `count` planes, wherever they
// lie; and back. Requires: count is 4 or 2.
void split_planes(const std::byte* in, size_t words, const std::array<std::byte*, kPlanes>& planes,
                  size_t count = kPlanes);
void join_planes(const std::array<const std::byte*, kPlanes>& planes, size_t words, std::byte* out,
                 size_t count = kPlanes);

// The planes one after another. Requires: out.size() == in.size(), a multiple of count.
void shuffle_words(std::span<const std::byte> in, std::span<std::byte> out, size_t count = kPlanes);
void unshuffle_words(std::span<const std::byte> in, std::span<std::byte> out,
                     size_t count = kPlanes);

}  // namespace lockstep::checkpoint
