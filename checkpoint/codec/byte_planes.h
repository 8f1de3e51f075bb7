// HDF5's shuffle filter (id 2) for 4-byte elements: all first bytes, all second bytes, … Each of
// these is a byte plane. Pure functions, in the widest form that the CPU has.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace lockstep::checkpoint {

inline constexpr size_t kPlanes = 4;

// Word i of `in` gives byte i of each of the planes, wherever they lie; and back.
void split_planes(const std::byte* in, size_t words, const std::array<std::byte*, kPlanes>& planes);
void join_planes(const std::array<const std::byte*, kPlanes>& planes, size_t words, std::byte* out);

// The planes one after another. Requires: out.size() == in.size(), a multiple of 4.
void shuffle_words(std::span<const std::byte> in, std::span<std::byte> out);
void unshuffle_words(std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace lockstep::checkpoint
