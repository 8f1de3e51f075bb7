#include "core/train/store_ballot.h"

namespace lockstep::core {

Result<void> StoreBallot::tell(const std::string& key, const std::string& words) {
  return store_.set(key, words);
}

Result<std::string> StoreBallot::hear(const std::string& key, std::chrono::milliseconds deadline) {
  return store_.get(key, static_cast<double>(deadline.count()) * 1e-3);
}

void StoreBallot::forget(const std::string& key) { (void)store_.remove(key).ok(); }

}  // namespace lockstep::core
