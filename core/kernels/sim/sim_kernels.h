// The column of simulated devices, for tests: each operation is given to the device's compute
// queue, and is the CPU's when its turn comes: the same bits. What it allocates, it allocates when
// it is called.
#pragma once

namespace lockstep::core {

// use_sim_device, this column, and LibTorch's operations (sim_operations.h): once in a process.
void use_sim();

}  // namespace lockstep::core
