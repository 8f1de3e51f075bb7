#include "core/optim/not_finite.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::core {

NotFinite judge_not_finite(NanPolicy policy, size_t left_out) {
  if (policy == NanPolicy::kSkip) return {NotFinite::Verdict::kSkip, ""};
  if (policy == NanPolicy::kRollback && left_out < kMaxLeftOut)
    return {NotFinite::Verdict::kGoBack, ""};
  if (policy == NanPolicy::kRollback)
    return {
        NotFinite::Verdict::kStop,
        text(kMaxLeftOut,
             " steps are left out already, and more are not: lower optimizer.lr, or look at the "
             "data")};
  return {NotFinite::Verdict::kStop,
          "A restart would give the same bits: lower optimizer.lr, look at the data of this step, "
          "or see training.nan_policy"};
}

bool is_left_out(const std::vector<int64_t>& skip_list, int64_t step) {
  return std::binary_search(skip_list.begin(), skip_list.end(), step);
}

void leave_out(std::vector<int64_t>& skip_list, int64_t step) {
  skip_list.insert(std::lower_bound(skip_list.begin(), skip_list.end(), step), step);
}

}  // namespace lockstep::core
