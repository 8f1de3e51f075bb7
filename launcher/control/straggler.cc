#include "launcher/control/straggler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/elementary.h"
#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

constexpr double kShare = 0.8;
constexpr double kMostOfTime = 0.1;  // that one step counts as: a pause says nothing
constexpr double kRounding = 1e-9;

// The median of the others than a rank that takes `own_us`. `sorted`: two of all ranks at least.
int64_t usual_us(const std::vector<int64_t>& sorted, int64_t own_us) {
  LOCKSTEP_CHECK(sorted.size() >= 2, sorted.size(), " ranks");
  const size_t middle = (sorted.size() - 1) / 2;
  return sorted[own_us <= sorted[middle] ? middle + 1 : middle];
}

std::vector<int64_t> known_sorted(std::vector<int64_t> slot_us) {
  std::erase(slot_us, 0);
  std::sort(slot_us.begin(), slot_us.end());
  return slot_us;
}

bool slow(int64_t own_us, int64_t usual, double factor) {
  return static_cast<double>(own_us) >= factor * static_cast<double>(usual);
}

}  // namespace

std::optional<Straggler> find_straggler(const std::vector<int64_t>& slot_us, double factor) {
  const std::vector<int64_t> sorted = known_sorted(slot_us);
  if (sorted.size() < 2) return std::nullopt;
  const auto slowest = std::max_element(slot_us.begin(), slot_us.end());
  const int64_t usual = usual_us(sorted, *slowest);
  if (!slow(*slowest, usual, factor)) return std::nullopt;
  return Straggler{static_cast<size_t>(slowest - slot_us.begin()), *slowest, usual};
}

SlowRank::SlowRank(double factor, double seconds) : factor_(factor), seconds_(seconds) {
  LOCKSTEP_CHECK(factor > 1 && seconds > 0, factor, " times, ", seconds, " s");
}

std::optional<Straggler> SlowRank::look(int64_t step, const std::vector<int64_t>& slot_us,
                                        int64_t now_ns) {
  const bool anew = shares_.size() != slot_us.size();
  if (anew) shares_.assign(slot_us.size(), 0);
  if (step == std::exchange(step_, step) && !anew) return std::nullopt;
  LOCKSTEP_CHECK(now_ns >= looked_ns_, "looked at ", looked_ns_, " and at ", now_ns);
  const int64_t since_ns = looked_ns_ < 0 ? 0 : now_ns - looked_ns_;
  looked_ns_ = now_ns;
  const double part = std::min(static_cast<double>(since_ns) * 1e-9 / seconds_, kMostOfTime);
  const double kept = elementary::pow(1 - kShare, part);
  const std::vector<int64_t> sorted = known_sorted(slot_us);
  if (sorted.size() < 2) return std::nullopt;
  std::optional<Straggler> found;
  for (size_t rank = 0; rank < slot_us.size(); ++rank) {
    const int64_t own = slot_us[rank], usual = usual_us(sorted, own);
    const bool now = own > 0 && slow(own, usual, factor_);
    shares_[rank] = kept * shares_[rank] + (now ? 1 - kept : 0);
    const bool stays = now && shares_[rank] >= kShare - kRounding;
    if (stays && (!found || own > found->slot_us)) found = Straggler{rank, own, usual};
  }
  return found;
}

std::string straggler_text(const Straggler& straggler) {
  return text("slow: ", fixed(static_cast<double>(straggler.slot_us) * 1e-3, 1),
              " ms for a slot, the others ",
              fixed(static_cast<double>(straggler.usual_us) * 1e-3, 1), " ms");
}

}  // namespace lockstep::launcher::control
