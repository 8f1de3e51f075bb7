#include "core/kernels/documents.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "core/device/devices.h"

namespace lockstep::core {
namespace {

// Row by row, each document inside a sequence, all of them beginning one.
void check_starts(std::span<const int64_t> starts, int64_t rows, int64_t seq_len) {
  LOCKSTEP_CHECK(!starts.empty() && starts.front() == 0, starts.size(), " documents");
  int64_t sequences = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t end = i + 1 < starts.size() ? starts[i + 1] : rows;
    LOCKSTEP_CHECK(starts[i] < end && end <= rows, "document ", i, " is rows ", starts[i], " to ",
                   end, " of ", rows);
    sequences += starts[i] % seq_len == 0;
  }
  LOCKSTEP_CHECK(sequences * seq_len == rows, sequences, " of ", rows, " rows of ", seq_len);
}

}  // namespace

Documents Documents::create(int64_t batch, int64_t seq_len, std::span<const int64_t> starts,
                            at::Device device) {
  const int64_t rows = batch * seq_len;
  LOCKSTEP_CHECK(rows <= std::numeric_limits<int32_t>::max(), rows, " rows in a slot");
  std::vector<int64_t> sequences;
  if (starts.empty()) {
    for (int64_t row = 0; row < rows; row += seq_len) sequences.push_back(row);
    starts = sequences;
  }
  check_starts(starts, rows, seq_len);
  const Device& of_slot = device_of(device);
  const at::Tensor positions = of_slot.host_tensor({rows}, at::kLong);
  const at::Tensor bounds = of_slot.host_tensor({std::ssize(starts) + 1}, at::kInt);
  int64_t* const position = positions.data_ptr<int64_t>();
  Documents out;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t first = starts[i];
    const int64_t length = (i + 1 < starts.size() ? starts[i + 1] : rows) - first;
    if (out.runs.empty() || out.runs.back().length != length)
      out.runs.push_back({first, 0, length});
    ++out.runs.back().count;
    out.longest = std::max(out.longest, length);
    for (int64_t p = 0; p < length; ++p) position[first + p] = p;
    bounds.data_ptr<int32_t>()[i] = static_cast<int32_t>(first);
  }
  bounds.data_ptr<int32_t>()[starts.size()] = static_cast<int32_t>(rows);
  out.positions_R = of_slot.copy_of(positions, device);
  out.bounds = of_slot.copy_of(bounds, device);
  return out;
}

}  // namespace lockstep::core
