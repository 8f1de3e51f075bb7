// What is done in folders that others share, in order, on a thread of its own: a file system that
// hangs must neither hold up training nor make an agent look dead to the other nodes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace lockstep {
inline namespace base {

// Thread-safe. A task must not throw, and may post others.
class TaskThread {
 public:
  using Task = std::function<void()>;
  static constexpr size_t kMostWaiting = 20'000;

  // `patience`: how long run() waits for what may hang.
  explicit TaskThread(std::chrono::milliseconds patience = std::chrono::seconds(1));
  ~TaskThread();  // does what is left

  void post(Task task) { post_latest("", std::move(task)); }
  // In place of one of this kind that has not begun, and after all that were posted since.
  void post_latest(const std::string& kind, Task task);
  // Posts, and returns when it is done: after its patience in any case, and at once while what was
  // posted before still hangs. False: kMostWaiting others wait, and it is left out.
  bool run(Task task);
  // Posts, and waits as run() does. What the task brings; nothing where it is not done by then.
  template <typename T>
  std::optional<T> ask(std::function<T()> task);
  // Returns when all that was posted is done.
  void finish();
  // The same, but false after `patience`.
  bool finish_within(std::chrono::milliseconds patience);

 private:
  struct Item {
    std::string kind;  // empty: none
    Task task;
  };
  bool is_done() const { return items_.empty() && !busy_; }
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;  // guarded, as what follows
  bool busy_ = false, closed_ = false;
  bool hangs_ = false;  // when run() waited last
  const std::chrono::milliseconds patience_;
  std::thread thread_;
};

template <typename T>
std::optional<T> TaskThread::ask(std::function<T()> task) {
  struct Answer {
    std::mutex mutex;
    std::optional<T> value;  // guarded
  };
  const auto answer = std::make_shared<Answer>();
  run([answer, task = std::move(task)] {
    T brought = task();
    const std::lock_guard lock(answer->mutex);
    answer->value = std::move(brought);
  });
  const std::lock_guard lock(answer->mutex);
  return std::move(answer->value);
}

// What a process waits for before it ends itself without tearing anything down, as its last words
// say why: what was posted to any of its threads is done, or kLastPatience is over for each of
// them. False: not all is done.
inline constexpr std::chrono::milliseconds kLastPatience{5000};
bool finish_task_threads(std::chrono::milliseconds patience = kLastPatience);

}  // namespace base
}  // namespace lockstep
