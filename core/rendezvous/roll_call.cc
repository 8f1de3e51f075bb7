#include "core/rendezvous/roll_call.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"

namespace lockstep::core {
namespace {

// Between two looks at whether this rank was asked to stop: while it connects, and while it waits
// for a key. (c10d logs warnings each time that one of its own waits ends without success.)
constexpr double kConnectSlice_s = 2, kKeySlice_s = 0.1;
constexpr int64_t kMostNamed = 16;
constexpr const char* kAllHere = "roll/all";

std::string key_of(int rank) { return text("roll/", rank); }

class Roll {
 public:
  explicit Roll(const RollCall& call)
      : call_(call), deadline_s_(call.clock.monotonic_s() + call.timeout_s) {}

  // Calls `attempt` until it is true. What c10d throws is a false.
  template <typename Attempt>
  Result<void> until(const std::string& what, double most_s, Attempt attempt) {
    std::string said;
    bool tried = false;
    for (;;) {
      const double now_s = call_.clock.monotonic_s();
      const double left_s = deadline_s_ - now_s, slice_s = std::clamp(left_s, 0.01, most_s);
      if (left_s <= 0 && tried)
        return Error{Code::kPeerLost,
                     text("rank ", call_.rank, " waited ", call_.timeout_s, " s for ", what,
                          " (comm.init_timeout_seconds), in vain",
                          said.empty() ? "" : ": " + said.substr(0, said.find('\n')))};
      tried = true;
      try {
        if (attempt(slice_s)) return {};
      } catch (const std::exception& e) {
        said = e.what();
      }
      if (call_.asked_to_stop && call_.asked_to_stop())
        return Error{Code::kAborted, text("rank ", call_.rank, " waited for ", what,
                                          " and was asked to stop: it stops")};
      const double spent_s = call_.clock.monotonic_s() - now_s;
      if (spent_s < slice_s) call_.clock.sleep_ns(static_cast<int64_t>((slice_s - spent_s) * 1e9));
    }
  }

  Result<void> until_there(c10d::Store& store, const std::string& key, const std::string& what) {
    return until(what, kKeySlice_s, [&](double) { return store.check({key}); });
  }

 private:
  const RollCall& call_;
  const double deadline_s_;
};

// "ranks 1, 3"
std::string missing(c10d::Store& store, int world_size) {
  std::string names;
  int64_t count = 0;
  for (int rank = 1; rank < world_size; ++rank)
    if (!store.check({key_of(rank)}) && ++count <= kMostNamed)
      names += text(count == 1 ? "" : ", ", rank);
  const std::string more =
      count > kMostNamed ? text(" and ", count - kMostNamed, " more") : std::string();
  return text(count == 1 ? "rank " : "ranks ", names, more);
}

}  // namespace

Result<c10::intrusive_ptr<c10d::Store>> call_roll(const RollCall& call,
                                                  const ConnectStore& connect) {
  Roll roll(call);
  c10::intrusive_ptr<c10d::Store> store;
  LOCKSTEP_RETURN_IF_ERROR(roll.until("the store of rank 0", kConnectSlice_s, [&](double slice_s) {
    store = connect(slice_s);
    store->set(key_of(call.rank), std::vector<uint8_t>{1});
    return true;
  }));
  if (call.rank > 0) {
    LOCKSTEP_RETURN_IF_ERROR(roll.until_there(
        *store, kAllHere, text("rank 0's word that all ", call.world_size, " ranks have come")));
    return store;
  }
  for (int rank = 1; rank < call.world_size; ++rank) {
    const auto here = roll.until_there(*store, key_of(rank), text("rank ", rank));
    if (here) continue;
    if (here.error().code != Code::kPeerLost) return here.error();
    return Error{
        Code::kPeerLost,
        text(missing(*store, call.world_size), " of ", call.world_size, " did not come within ",
             call.timeout_s, " s (comm.init_timeout_seconds): see the logs of their nodes")};
  }
  LOCKSTEP_RETURN_IF_ERROR(roll.until("the store of this rank", kKeySlice_s, [&](double) {
    store->set(kAllHere, std::vector<uint8_t>{1});
    return true;
  }));
  return store;
}

}  // namespace lockstep::core
