// What a process that uses LibTorch sets up once, before its first tensor.
#pragma once

namespace lockstep::core {

// Pins intra-op threads, which are part of the arithmetic, and puts the counting allocator in place.
void set_up_process(int threads);

}  // namespace lockstep::core
