// What a process that uses LibTorch sets up once, before its first tensor.
#pragma once

namespace lockstep::core {

// Pins intra-op threads, which are part of the arithmetic, puts the counting allocator in place,
// and keeps freed memory in the process.
void set_up_process(int threads);

}  // namespace lockstep::core
