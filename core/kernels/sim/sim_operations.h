// LibTorch's own operations on tensors of simulated devices, for tests: those that core calls.
// Views and allocation happen at once; what touches bytes is given to the compute queue, and is the
// CPU's operation when its turn comes. Any other operation is LibTorch's error that the backend
// does not have it: nothing runs at once by accident.
#pragma once

namespace lockstep::core {

// Once in a process.
void register_sim_operations();

}  // namespace lockstep::core
