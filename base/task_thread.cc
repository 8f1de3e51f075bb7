#include "base/task_thread.h"

#include <utility>

namespace lockstep {
inline namespace base {

TaskThread::TaskThread() : thread_([this] { work(); }) {}

TaskThread::~TaskThread() {
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
  if (!hangs_) hangs_ = !changed_.wait_for(lock, kPatience, [&] { return is_done(); });
  return true;
}

void TaskThread::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_done(); });
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
