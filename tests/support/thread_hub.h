// A meeting place of threads: what each one sends at a sequence number, all get. Bounded by a
// deadline.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep::core {

// What the ranks of one group share.
class ThreadHub {
 public:
  struct Sent {
    std::vector<std::byte> bytes;
    std::vector<size_t> counts;  // bytes for each rank
  };
  explicit ThreadHub(int size) : size_(size) {}
  int size() const { return size_; }

  void post(int64_t sequence, int rank, Sent sent) {
    std::lock_guard lock(mutex_);
    auto& all = posted_[sequence];
    all.resize(static_cast<size_t>(size_));
    all[static_cast<size_t>(rank)] = std::make_unique<Sent>(std::move(sent));
    changed_.notify_all();
  }
  // What everybody sent; null: not in time. The last of the ranks to take it frees it.
  using All = std::shared_ptr<std::vector<std::unique_ptr<Sent>>>;
  All take(int64_t sequence) {
    std::unique_lock lock(mutex_);
    const bool in_time = changed_.wait_for(lock, std::chrono::seconds(60), [&] {
      if (ready_.contains(sequence)) return true;
      for (const auto& sent : posted_[sequence])
        if (!sent) return false;
      return !posted_[sequence].empty();
    });
    if (!in_time) return nullptr;
    if (!ready_.contains(sequence)) {
      auto all = std::make_shared<std::vector<std::unique_ptr<Sent>>>();
      all->swap(posted_[sequence]);
      posted_.erase(sequence);
      ready_[sequence] = {std::move(all), size_};
    }
    auto& [all, left] = ready_[sequence];
    All mine = all;
    if (--left == 0) ready_.erase(sequence);
    return mine;
  }

 private:
  int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, std::vector<std::unique_ptr<Sent>>> posted_;
  std::map<int64_t, std::pair<All, int>> ready_;
};

}  // namespace lockstep::core
