#include "tests/support/memory_ballot.h"

#include "base/text.h"

namespace lockstep::checkpoint {

Result<void> MemoryBallot::tell(const std::string& key, const std::string& words) {
  const std::lock_guard lock(mutex_);
  words_[key] = words;
  changed_.notify_all();
  return {};
}

Result<std::string> MemoryBallot::hear(const std::string& key, std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, deadline, [&] { return words_.contains(key); }))
    return Error{Code::kTimeout, text("nobody told ", key, " within ", deadline.count(), " ms")};
  return words_.at(key);
}

void MemoryBallot::forget(const std::string& key) {
  const std::lock_guard lock(mutex_);
  words_.erase(key);
}

size_t MemoryBallot::size() const {
  const std::lock_guard lock(mutex_);
  return words_.size();
}

}  // namespace lockstep::checkpoint
