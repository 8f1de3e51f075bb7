#include "base/task_thread.h"

#include <utility>
#include <vector>

namespace lockstep {
inline namespace base {

namespace {

struct Alive {
  std::mutex mutex;
  std::vector<TaskThread*> threads;  // guarded
};
// Never destroyed: threads may end while the process is leaving.
Alive& alive() {
  static Alive* const instance = new Alive;
  return *instance;
}

}  // namespace

TaskThread::TaskThread(std::chrono::milliseconds patience)
    : patience_(patience), thread_([this] { work(); }) {
  const std::lock_guard lock(alive().mutex);
  alive().threads.push_back(this);
}

TaskThread::~TaskThread() {
  {
    const std::lock_guard lock(alive().mutex);
    std::erase(alive().threads, this);
  }
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TaskThread::post_latest(const std::string& kind, Task task) {
  const std::lock_guard lock(mutex_);
  if (!kind.empty()) std::erase_if(items_, [&](const Item& item) { return item.kind == kind; });
  items_.push_back({kind, std::move(task)});
  changed_.notify_all();
}

bool TaskThread::run(Task task) {
  std::unique_lock lock(mutex_);
  if (items_.size() >= kMostWaiting) return false;
  if (is_done()) hangs_ = false;
  items_.push_back({"", std::move(task)});
  changed_.notify_all();
  if (!hangs_) hangs_ = !changed_.wait_for(lock, patience_, [&] { return is_done(); });
  return true;
}

void TaskThread::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_done(); });
}

bool TaskThread::finish_within(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  // A task cannot wait for its own end.
  if (thread_.get_id() == std::this_thread::get_id()) return false;
  return changed_.wait_for(lock, patience, [&] { return is_done(); });
}

bool finish_task_threads(std::chrono::milliseconds patience) {
  const std::lock_guard lock(alive().mutex);
  bool done = true;
  for (TaskThread* const thread : alive().threads) done = thread->finish_within(patience) && done;
  return done;
}

void TaskThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return;
    const Task task = std::move(items_.front().task);
    items_.pop_front();
    busy_ = true;
    lock.unlock();
    task();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace base
}  // namespace lockstep
