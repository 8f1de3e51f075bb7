#include "core/comm/gather_words.h"
#include "base/check.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

namespace lockstep::core {

Result<std::vector<uint64_t>> gather_words(Gatherer& group, const std::vector<uint64_t>& mine) {
  if (group.world_size() == 1) return mine;
  at::Tensor in = at::zeros({std::ssize(mine)}, at::kLong);
  const at::Tensor out = at::zeros({group.world_size() * std::ssize(mine)}, at::kLong);
  std::copy(mine.begin(), mine.end(), in.data_ptr<int64_t>());
  LOCKSTEP_CHECK(!mine.empty() && group.rank() < group.world_size(), mine.size(), " words of rank ",
                 group.rank(), " of ", group.world_size());
  LOCKSTEP_RETURN_IF_ERROR(group.all_gather(out, in)->wait());
  const int64_t* const all = out.const_data_ptr<int64_t>();
  return std::vector<uint64_t>(all, all + out.numel());
}

}  // namespace lockstep::core
