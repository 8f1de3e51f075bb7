// The threads that a kernel's __launch_bounds__ promise, as nvcc wrote them into its machine code:
// the table that tools/ptxas_table keeps. When a test program ends, every kernel that it launched
// must stand there with as many threads as it was launched with.
#pragma once

#include <map>
#include <string>

namespace lockstep::cuda_host {

std::map<std::string, int> bounds_of_kernels();

}  // namespace lockstep::cuda_host
