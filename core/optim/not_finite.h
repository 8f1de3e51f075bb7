// What becomes of a step whose loss or gradient norm is not finite (training.nan_policy).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/choices.h"

namespace lockstep::core {

// Steps that a run may leave out: more of them mean that something else is wrong.
inline constexpr size_t kMaxLeftOut = 16;

struct NotFinite {
  enum class Verdict {
    kSkip,    // no update; the run goes on
    kStop,    // the state of the step before is saved, and the run ends
    kGoBack,  // to the newest checkpoint; the step is left out when it comes again
  };
  Verdict verdict;
  std::string advice;  // of kStop, for people
};
// `policy`: training.nan_policy. `left_out`: how many steps the run leaves out already.
NotFinite judge_not_finite(NanPolicy policy, size_t left_out);

// Of a skip list, which ascends.
bool is_left_out(const std::vector<int64_t>& skip_list, int64_t step);
void leave_out(std::vector<int64_t>& skip_list, int64_t step);

}  // namespace lockstep::core
