#include "core/comm/buddies.h"

#include <thread>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::core {

// Both at once: along a ring in which each rank makes the one first, all would wait for each other.
Result<void> Buddies::connect(int from) {
  LOCKSTEP_CHECK(from >= 0 && from != rank_ && !to_ && !from_, "rank ", rank_,
                 " keeps the copy of rank ", from, ", or is connected already");
  const auto way = [this](int first, int place, std::unique_ptr<GlooGroup>& group) -> Result<void> {
    try {
      group = connect_(text("from_", first), place);
      return {};
    } catch (const std::exception& e) {
      const std::string reason = e.what();
      return Error{Code::kPeerLost,
                   text("connecting buddies: ", reason.substr(0, reason.find('\n')))};
    }
  };
  Result<void> there;
  std::thread other([&] { there = way(rank_, 0, to_); });
  const Result<void> back = way(from, 1, from_);
  other.join();
  LOCKSTEP_RETURN_IF_ERROR(there);
  return back;
}

Result<void> Buddies::exchange(const at::Tensor& out, const at::Tensor& in) {
  LOCKSTEP_CHECK(to_ != nullptr && from_ != nullptr, "the buddy ranks are not connected");
  PendingPtr sent, received;
  if (out.numel() > 0) sent = to_->messages("to a buddy", {}, {{1, out}}, Traffic::kOther);
  if (in.numel() > 0) received = from_->messages("from a buddy", {{0, in}}, {}, Traffic::kOther);
  if (received) LOCKSTEP_RETURN_IF_ERROR(received->wait());
  return sent ? sent->wait() : Result<void>();
}

}  // namespace lockstep::core
