#include "core/comm/interruption.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::core {
namespace {

std::atomic<bool> happened{false};
std::mutex mutex;
std::vector<OnInterrupt*> waits;  // guarded by mutex

}  // namespace

void interrupt() {
  const std::lock_guard lock(mutex);
  if (happened.exchange(true)) return;
  for (OnInterrupt* wait : waits) wait->end_wait_();
}

bool interrupted() { return happened.load(std::memory_order_relaxed); }

Error generation_over(const std::string& what) {
  return {Code::kPeerLost, text(what, ": this generation is over")};
}

void clear_interruption() {
  const std::lock_guard lock(mutex);
  LOCKSTEP_CHECK(waits.empty(), waits.size(), " waits are left of the generation before");
  happened = false;
}

OnInterrupt::OnInterrupt(std::function<void()> end_wait) : end_wait_(std::move(end_wait)) {
  const std::lock_guard lock(mutex);
  waits.push_back(this);
  if (happened) end_wait_();
}

OnInterrupt::~OnInterrupt() {
  const std::lock_guard lock(mutex);
  const auto found = std::find(waits.begin(), waits.end(), this);
  LOCKSTEP_CHECK(found != waits.end(), "a wait ends twice, of ", waits.size());
  waits.erase(found);
}

}  // namespace lockstep::core
