#include "launcher/control/straggler.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

constexpr double kSlow = 1.5;
constexpr int64_t kSlowSteps = 10;

}  // namespace

std::optional<Straggler> find_straggler(const std::vector<int64_t>& slot_us) {
  const auto slowest = std::max_element(slot_us.begin(), slot_us.end());
  std::vector<int64_t> others;
  for (auto it = slot_us.begin(); it != slot_us.end(); ++it)
    if (it != slowest && *it > 0) others.push_back(*it);
  if (others.empty()) return std::nullopt;
  const auto middle = others.begin() + std::ssize(others) / 2;
  std::nth_element(others.begin(), middle, others.end());
  if (static_cast<double>(*slowest) < kSlow * static_cast<double>(*middle)) return std::nullopt;
  return Straggler{static_cast<size_t>(slowest - slot_us.begin()), *slowest, *middle};
}

std::optional<Straggler> SlowRank::look(int64_t step, const std::vector<int64_t>& slot_us) {
  if (step == std::exchange(step_, step)) return std::nullopt;
  const auto found = find_straggler(slot_us);
  const int64_t rank = found ? static_cast<int64_t>(found->rank) : -1;
  steps_ = rank == std::exchange(rank_, rank) ? steps_ + 1 : 1;
  return steps_ == kSlowSteps ? found : std::nullopt;
}

std::string straggler_text(const Straggler& straggler) {
  return text("slow: ", fixed(static_cast<double>(straggler.slot_us) * 1e-3, 1),
              " ms for a slot, the others ",
              fixed(static_cast<double>(straggler.usual_us) * 1e-3, 1), " ms");
}

}  // namespace lockstep::launcher::control
