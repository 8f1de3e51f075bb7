// Runs CUDA kernels on the host: what the tests say to it and ask of it. Kernels see
// include/cuda_runtime_api.h.
//
// Blocks run one after another. The threads of a block are fibers: one runs until it waits at a
// barrier or a shuffle, or leaves the kernel; then the first that can go on does. Which one is
// first is the order, so one order gives the same steps each time. Two threads never run at once: a
// fault of timing shows when two orders give other bits, or when the accesses themselves are
// watched (race_watch.cc, in programs that link it).
//
// A launch is refused (KernelFault, with the kernel's name and the place) where
//   - a thread waits at a barrier that another one of its block does not come to: it has left the
//     kernel, waits for a shuffle, or stands at another barrier;
//   - lanes of a warp meet at a shuffle with other masks or at other places, a mask lacks the lane
//     itself or the one that it asks, or names one that has left or does not exist;
//   - a grid or a block is larger than a device takes.
// After a KernelFault the emulator is as new. Thread: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::cuda_host {

class KernelFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Order { kForward, kBackward, kShuffled };

// The n-th barrier (from 0) that each thread of `kernel` comes to.
struct Barrier {
  std::string kernel;
  int index = 0;
};

// What the next launches do.
struct Settings {
  Order order = Order::kShuffled;  // of blocks, and of threads in a block
  uint64_t seed = 1;               // of kShuffled
  std::optional<Barrier> taken_out;
  std::vector<int64_t> only_blocks;  // not empty: of a launch with more, these alone run
};
Settings& settings();

// What ran, by kernel, since the program began.
struct Record {
  int launches = 0;
  int most_threads = 0;  // of a block
  int barriers = 0;      // the most that a thread came to
};
const std::map<std::string, Record, std::less<>>& records();

// Memory that kernels may touch from now on, and that they may no longer. Without a watch of
// accesses it means nothing: then ASan knows what they may touch.
void show_memory(const void* first, size_t bytes);
void hide_memory(const void* first);

// Where the emulator is: what a watch of accesses asks.
struct Running {
  uint32_t launch = 0;  // from 1; 0: no kernel runs, or the emulator itself does
  int32_t block = 0;
  int16_t thread = 0, barriers = 0;  // how many the thread has passed
};
const Running& running();
// Whether `address` belongs to a thread (its stack, its indices), or is an argument of the launch.
bool is_private(const void* address);
// Ends the launch with a KernelFault. Requires: a kernel's thread calls it.
[[noreturn]] void fault(const std::string& what);

}  // namespace lockstep::cuda_host
