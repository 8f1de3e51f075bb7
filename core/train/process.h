// What a process that uses LibTorch sets up once, before its first tensor.
#pragma once

#include "core/comm/join.h"

namespace lockstep::core {

// Pins intra-op threads, which are part of the arithmetic, puts the counting allocator in place,
// and keeps freed memory in the process.
void set_up_process(int threads);

// Has the heap grow by so many bytes, at most kKeptBytes and a quarter of what is free, and keep
// them: tensors made later cost no page faults.
void keep_memory(int64_t bytes);
inline constexpr int64_t kKeptBytes = int64_t{768} << 20;

// Of a process that waits for its rank: what the first use of a device costs. Sets up the device of
// `local_rank`: its context, its products' library and workspace, the page-locked memory of saves.
// Requires: there is one. Throws where the device has no room.
void warm_up(int local_rank);

// A membership of one rank, on this machine's first device.
Result<Membership> join_alone();

}  // namespace lockstep::core
