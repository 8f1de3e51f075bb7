#include "core/comm/gather_strings.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "base/check.h"

namespace lockstep::core {

namespace {

at::Tensor tensor_of(std::string words, size_t bytes) {
  LOCKSTEP_CHECK(words.size() <= bytes, words.size(), " > ", bytes);
  words.resize(bytes, '\0');
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  std::memcpy(tensor.data_ptr(), words.data(), bytes);
  return tensor;
}

}  // namespace

Result<std::vector<std::string>> gather_strings(Communicator& group, std::string mine,
                                                size_t bytes) {
  const at::Tensor in = tensor_of(std::move(mine), bytes);
  at::Tensor out = at::zeros({in.numel() * group.world_size()}, at::kByte);
  LOCKSTEP_RETURN_IF_ERROR(group.all_gather(out, in)->wait());
  std::vector<std::string> all;
  for (int r = 0; r < group.world_size(); ++r)
    all.emplace_back(static_cast<const char*>(out.data_ptr()) + static_cast<size_t>(r) * bytes,
                     bytes);
  return all;
}

Result<std::string> string_of_first(Communicator& group, std::string mine, size_t bytes) {
  const at::Tensor tensor = tensor_of(mine, bytes);
  if (const PendingPtr spread = group.spread(tensor)) {
    LOCKSTEP_RETURN_IF_ERROR(spread->wait());
    return std::string(static_cast<const char*>(tensor.data_ptr()), bytes);
  }
  LOCKSTEP_TRY(const auto all, gather_strings(group, std::move(mine), bytes));
  return all.front();
}

Result<std::string> string_of_first(Communicator& group, std::string mine) {
  const uint64_t own_bytes = mine.size();
  LOCKSTEP_TRY(const std::string told,
               string_of_first(group, {reinterpret_cast<const char*>(&own_bytes), sizeof own_bytes},
                               sizeof own_bytes));
  uint64_t bytes = 0;
  std::memcpy(&bytes, told.data(), sizeof bytes);
  if (group.rank() != 0) mine.clear();
  return string_of_first(group, std::move(mine), bytes);
}

}  // namespace lockstep::core
