// What an agent has done in folders that others share, in order, on a thread of its own: a file
// system that hangs for seconds must not make the agent look dead to the other nodes.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::launcher {

// Thread-safe. A task must not throw, and may post others.
class TaskThread {
 public:
  using Task = std::function<void()>;
  TaskThread();
  ~TaskThread();  // does what is left

  void post(Task task) { post_latest("", std::move(task)); }
  // In place of one of this kind that has not begun, and after all that were posted since.
  void post_latest(const std::string& kind, Task task);
  // Returns when all that was posted is done.
  void finish();

 private:
  struct Item {
    std::string kind;  // empty: none
    Task task;
  };
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;  // guarded, as what follows
  bool busy_ = false, closed_ = false;
  std::thread thread_;
};

}  // namespace lockstep::launcher
