// The canonical gradient sum: the balanced binary tree over slot index, as a streaming binary
// counter (docs/ARCHITECTURE.md, rule 4). Push sums of aligned runs of slots in slot order; two
// that are the halves of one node are added at once; result() folds what is left from the top. Any
// world size, and any place where a node was added, gives the same tree.
//
//   pushes:   g0      g1          g2        g3
//   partials: [g0]    [g0+g1]     [01][g2]  [01+(g2+g3)]
//
// Holds up to floor(log2 V) + 1 partials of `elements` fp32. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "config/choices.h"
#include "layout/slot_map.h"

namespace lockstep::core {

using layout::SlotMap;
using layout::SlotRun;

class FoldTree {
 public:
  FoldTree(int64_t elements, Reduction reduction) : elements_(elements), reduction_(reduction) {}

  // `part`: the sum over `run`, a node of the tree, `elements` of fp32 or bf16, always on one
  // device. Requires: `run` begins where the last one ended.
  void push(const at::Tensor& part, const SlotRun& run);
  // All slots of a round were pushed. Matters to kUnordered alone.
  void end_round();
  // The sum as fp32 [elements]; the tensor is valid until the next push. Ends the step.
  at::Tensor result();
  // The partial sums, in slot order, and an empty tree; give_back returns their memory.
  std::vector<at::Tensor> take_partials();
  void give_back(std::vector<at::Tensor> tensors);

 private:
  struct Partial {
    at::Tensor sum;
    SlotRun run;
  };
  at::Tensor fresh(at::Device device);
  void push_copy(const at::Tensor& part, const SlotRun& run);
  void merge_top();
  int64_t elements_;
  Reduction reduction_;
  std::vector<Partial> partials_;  // the stack; without a tree: the sum, and the round's
  bool in_round_ = false;          // without a tree: the round has pushed
  std::vector<at::Tensor> spare_;  // reused, so that the steady state allocates nothing
};

}  // namespace lockstep::core
