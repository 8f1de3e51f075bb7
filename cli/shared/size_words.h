// Sizes as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/text.h"

namespace lockstep::cli {

// "80GiB", "40 GB", "1.5TiB", "100kb", "4096": a decimal number of B, kB to TB (powers of 1000), or
// KiB to TiB (of 1024), in any case; alone, of bytes. Nothing where it is no such word, or not of
// [1, 1e18) bytes.
std::optional<int64_t> bytes_of_words(const std::string& words);

// 1536 -> "1.50 KiB". Requires: not negative.
inline std::string size_of(int64_t bytes) { return bytes_text(static_cast<uint64_t>(bytes)); }

}  // namespace lockstep::cli
