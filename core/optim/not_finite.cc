#include "core/optim/not_finite.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::core {

NotFinite judge_not_finite(NanPolicy policy, size_t left_out) {
  if (policy == NanPolicy::kSkip) return {NotFinite::Verdict::kSkip, ""};
  if (policy == NanPolicy::kRollback && left_out < kMaxLeftOut)
    return {NotFinite::Verdict::kGoBack, ""};
  if (policy == NanPolicy::kRollback)
    return {NotFinite::Verdict::kStop, text(kMaxLeftOut,
                                            " steps are skipped already, which is the most that "
                                            "may be; lower optimizer.lr or check the data")};
  return {NotFinite::Verdict::kStop,
          "A restart would compute the same bits again: lower optimizer.lr, check the data of this "
          "step, or set training.nan_policy"};
}

bool is_left_out(const std::vector<int64_t>& skip_list, int64_t step) {
  return std::binary_search(skip_list.begin(), skip_list.end(), step);
}

void leave_out(std::vector<int64_t>& skip_list, int64_t step) {
  skip_list.insert(std::lower_bound(skip_list.begin(), skip_list.end(), step), step);
}

}  // namespace lockstep::core
