// A worker's process serves one generation after another (worker_link/progress_page.h): it hears
// that one is over, lets go of it, and takes the orders of the next. It keeps LibTorch, its
// threads, and the memory that it has.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/file_system.h"
#include "core/comm/join.h"
#include "worker_link/progress_page.h"
#include "worker_link/worker_orders.h"

namespace lockstep::core {

// Borrows the file system. Thread: one, besides its own, which interrupts (comm/interruption.h).
class Turns {
 public:
  // Errors: kIo.
  static Result<std::unique_ptr<Turns>> open(FileSystem& file_system,
                                             const std::filesystem::path& page);

  ProgressPage& page() { return *page_; }
  // Returns when the agent gives the next turn: its orders. Output goes where they say.
  // Requires: nothing of the last one is left. Errors: kIo, kCorrupt, kConfig.
  Result<WorkerOrders> next();

 private:
  Turns(FileSystem& file_system, std::filesystem::path path, std::unique_ptr<ProgressPage> page);
  void watch(const std::stop_token& stop);

  FileSystem& file_system_;
  const std::filesystem::path path_;
  std::unique_ptr<ProgressPage> page_;
  std::mutex mutex_;  // between seeing a halt and saying so
  std::jthread watch_;
};

// Leaves the generation at once. A thread of its own waits for what Gloo has still under way, and
// then closes the connections.
void destroy_in_background(Membership membership);

}  // namespace lockstep::core
