// The canonical gradient sum: adds the numbers in the order of a FoldOrder (layout/fold_order.h).
// Push sums of aligned runs of slots in slot order; two that are the halves of one node are added
// at once; result() folds what is left from the top. Any world size, and any place where a node was
// added, gives the same tree.
//
// Holds up to floor(log2 V) + 1 partials of `elements` fp32, each from when it is pushed until it
// is added to another one. Borrows the pool. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/sharding/buffer_pool.h"
#include "layout/fold_order.h"

namespace lockstep::core {

using layout::SlotMap;
using layout::SlotRun;

class FoldTree {
 public:
  FoldTree(int64_t elements, Reduction reduction, BufferPool& sums)
      : elements_(elements), order_(reduction), sums_(sums) {}

  // `part`: the sum over `run`, a node of the tree, `elements` of fp32 or bf16, on the pool's
  // device. Requires: `run` begins where the last one ended.
  void push(const at::Tensor& part, const SlotRun& run);
  // All slots of a round were pushed. Matters to kUnordered alone.
  void end_round();
  // The sum as fp32 [elements], which the caller gives back to the pool. Ends the step.
  at::Tensor result();
  // The partial sums, in slot order, and an empty tree; give_back returns their memory.
  std::vector<at::Tensor> take_partials();
  void give_back(std::vector<at::Tensor> tensors);

 private:
  void merge_top();
  int64_t elements_;
  layout::FoldOrder order_;
  BufferPool& sums_;
  std::vector<at::Tensor> open_;  // as order_ has them
};

}  // namespace lockstep::core
