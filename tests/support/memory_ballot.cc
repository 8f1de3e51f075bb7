#include "tests/support/memory_ballot.h"

#include "base/text.h"

namespace lockstep::checkpoint {

Result<void> MemoryBallot::not_aborted() const {
  if (aborted_) return Error{Code::kAborted, "the ballot was aborted"};
  return {};
}

Result<void> MemoryBallot::cast(const std::string& attempt, int rank, const std::string& vote) {
  const std::lock_guard lock(mutex_);
  LOCKSTEP_RETURN_IF_ERROR(not_aborted());
  attempts_[attempt].votes[rank] = vote;
  changed_.notify_all();
  return {};
}

Result<std::vector<std::string>> MemoryBallot::collect(const std::string& attempt, int world_size,
                                                       std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  const auto& votes = attempts_[attempt].votes;
  const bool all = changed_.wait_for(
      lock, deadline, [&] { return aborted_ || votes.size() == static_cast<size_t>(world_size); });
  LOCKSTEP_RETURN_IF_ERROR(not_aborted());
  if (!all) {
    std::string missing;
    for (int rank = 0; rank < world_size; ++rank)
      if (!votes.contains(rank)) missing += text(missing.empty() ? "" : ", ", rank);
    return Error{Code::kTimeout,
                 text("no vote within ", deadline.count(), " ms from rank ", missing)};
  }
  std::vector<std::string> in_order;
  for (const auto& [rank, vote] : votes) in_order.push_back(vote);
  std::erase_if(attempts_, [&](const auto& each) { return each.first != attempt; });
  return in_order;
}

Result<void> MemoryBallot::announce(const std::string& attempt, const std::string& outcome) {
  const std::lock_guard lock(mutex_);
  LOCKSTEP_RETURN_IF_ERROR(not_aborted());
  attempts_[attempt].outcome = outcome;
  changed_.notify_all();
  return {};
}

Result<std::string> MemoryBallot::await_outcome(const std::string& attempt,
                                                std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  const auto& outcome = attempts_[attempt].outcome;
  const bool known =
      changed_.wait_for(lock, deadline, [&] { return aborted_ || outcome.has_value(); });
  LOCKSTEP_RETURN_IF_ERROR(not_aborted());
  if (!known)
    return Error{Code::kTimeout, text("no outcome from rank 0 within ", deadline.count(), " ms")};
  return *outcome;
}

void MemoryBallot::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

}  // namespace lockstep::checkpoint
