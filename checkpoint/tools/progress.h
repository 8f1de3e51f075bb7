#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::checkpoint {

// Told now and then by what takes long; done_bytes ends at total_bytes.
using Progress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

}  // namespace lockstep::checkpoint
