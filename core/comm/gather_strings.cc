#include "core/comm/gather_strings.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "base/check.h"

namespace lockstep::core {

Result<std::vector<std::string>> gather_strings(Communicator& group, std::string mine,
                                                size_t bytes) {
  LOCKSTEP_CHECK(mine.size() <= bytes, mine.size(), " > ", bytes);
  mine.resize(bytes, '\0');
  at::Tensor in = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  std::memcpy(in.data_ptr(), mine.data(), bytes);
  at::Tensor out = at::zeros({in.numel() * group.world_size()}, at::kByte);
  LOCKSTEP_RETURN_IF_ERROR(group.all_gather(out, in)->wait());
  std::vector<std::string> all;
  for (int r = 0; r < group.world_size(); ++r)
    all.emplace_back(static_cast<const char*>(out.data_ptr()) + static_cast<size_t>(r) * bytes,
                     bytes);
  return all;
}

}  // namespace lockstep::core
