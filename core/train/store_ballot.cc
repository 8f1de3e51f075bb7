#include "core/train/store_ballot.h"

#include <utility>

#include "base/clock.h"
#include "base/text.h"

namespace lockstep::core {
namespace {

std::string vote_key(const std::string& attempt, int rank) {
  return text("save/", attempt, "/", rank);
}
std::string outcome_key(const std::string& attempt) { return text("save/", attempt, "/outcome"); }
double seconds(std::chrono::milliseconds t) { return static_cast<double>(t.count()) * 1e-3; }

}  // namespace

Result<void> StoreBallot::cast(const std::string& attempt, int rank, const std::string& vote) {
  return store_.set(vote_key(attempt, rank), vote);
}

Result<std::vector<std::string>> StoreBallot::collect(const std::string& attempt, int world_size,
                                                      std::chrono::milliseconds deadline) {
  const double end = system_clock().monotonic_s() + seconds(deadline);
  std::vector<std::string> votes;
  std::string silent;
  Code code = Code::kTimeout;
  for (int r = 0; r < world_size; ++r) {
    auto vote = store_.get(vote_key(attempt, r), std::max(0.0, end - system_clock().monotonic_s()));
    if (vote.ok()) {
      votes.push_back(std::move(vote).value());
      continue;
    }
    code = vote.error().code;
    silent += text(silent.empty() ? "" : ", ", r);
  }
  if (silent.empty()) forget_earlier(world_size);
  earlier_.push_back(attempt);
  if (!silent.empty()) return Error{code, text("no vote on ", attempt, " from rank(s) ", silent)};
  return votes;
}

// A key that stays is no harm: no attempt's name is used twice.
void StoreBallot::forget_earlier(int world_size) {
  for (const std::string& attempt : std::exchange(earlier_, {})) {
    (void)store_.remove(outcome_key(attempt)).ok();
    for (int r = 0; r < world_size; ++r) (void)store_.remove(vote_key(attempt, r)).ok();
  }
}

Result<void> StoreBallot::announce(const std::string& attempt, const std::string& outcome) {
  return store_.set(outcome_key(attempt), outcome);
}

Result<std::string> StoreBallot::await_outcome(const std::string& attempt,
                                               std::chrono::milliseconds deadline) {
  auto outcome = store_.get(outcome_key(attempt), seconds(deadline));
  if (!outcome.ok()) return outcome.error().in(text("waiting for rank 0's word on ", attempt));
  return outcome;
}

}  // namespace lockstep::core
