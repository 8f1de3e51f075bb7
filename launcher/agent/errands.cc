#include "launcher/agent/errands.h"

#include <utility>

namespace lockstep::launcher {

Errands::Errands() : thread_([this] { work(); }) {}

Errands::~Errands() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Errands::post_latest(const std::string& kind, Errand errand) {
  const std::lock_guard lock(mutex_);
  if (!kind.empty()) std::erase_if(items_, [&](const Item& item) { return item.kind == kind; });
  items_.push_back({kind, std::move(errand)});
  changed_.notify_all();
}

void Errands::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return items_.empty() && !busy_; });
}

void Errands::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return;
    const Errand errand = std::move(items_.front().errand);
    items_.pop_front();
    busy_ = true;
    lock.unlock();
    errand();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace lockstep::launcher
