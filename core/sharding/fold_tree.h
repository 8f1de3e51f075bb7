// The canonical gradient sum: adds the numbers in the order of a FoldOrder (layout/fold_order.h).
// Push sums of aligned runs of slots in slot order; end_round adds what arrived together by as few
// kernels as can be; result() folds what is left from the top. Any world size, and any place where
// a node was added, gives the same tree.
//
//   push … -> end_round -> … -> result or take_partials
//
// Holds up to floor(log2 V) + 1 partials of `elements` fp32, each until it is added to another one.
// Borrows the pool. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "core/sharding/buffer_pool.h"
#include "layout/fold_order.h"

namespace lockstep::core {

using layout::SlotMap;
using layout::SlotRun;

class FoldTree {
 public:
  FoldTree(int64_t elements, Reduction reduction, BufferPool& sums)
      : elements_(elements), steps_(reduction), sums_(sums) {}

  // `part`: the sum over `run`, a node of the tree, `elements` of fp32 or bf16, on the pool's
  // device, which stays as it is until end_round. Requires: `run` begins where the last one ended;
  // the parts of a round are of one type.
  void push(const at::Tensor& part, const SlotRun& run);
  // Adds what was pushed: the parts are read by nobody any more. kUnordered: a round's sum.
  void end_round();
  // The sum as fp32 [elements], which the caller gives back to the pool. Ends the step. Requires,
  // as take_partials does: what was pushed was added.
  at::Tensor result();
  // The slots whose gradients are in the sum, each once.
  SlotRun pushed() const { return steps_.pushed(); }
  // The partial sums, in slot order, and an empty tree; give_back returns their memory.
  std::vector<at::Tensor> take_partials();
  void give_back(std::vector<at::Tensor> tensors);

 private:
  void add(std::span<const at::Tensor> parts, int sums);
  int64_t elements_;
  layout::FoldSteps steps_;
  BufferPool& sums_;
  std::vector<at::Tensor> parts_;  // that were pushed
  std::vector<at::Tensor> open_;   // as steps_ has them
};

}  // namespace lockstep::core
