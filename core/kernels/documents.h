// The documents of a slot. They fill its R = B*T rows one after the other: a row attends to rows of
// its own document alone, and positions count from a document's first row. Where nothing says where
// documents start, each sequence is one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::core {

// Neighbours of one length, which are worked on together.
struct DocumentRun {
  int64_t first_row, count, length;
};

struct Documents {
  std::vector<DocumentRun> runs;  // in order, over all rows
  int64_t longest = 0;
  at::Tensor positions_R;  // int64: of each row in its document
  at::Tensor bounds;       // int32 [documents + 1]: the first row of each, and R

  // `starts`: the first row of each document, ascending, every seq_len-th row among them; empty:
  // those alone. Tensors go to `device`.
  static Documents create(int64_t batch, int64_t seq_len, std::span<const int64_t> starts,
                          at::Device device);
};

}  // namespace lockstep::core
